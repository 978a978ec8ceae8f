"""Recovery after a crash or a restart, to the journal's last step. Decisions, folds and status.

The trainer reports the weights it finds in memory (`Bound`). If they are not those of the newest checkpoint, the
checkpoint is restored; the steps since are then run again one by one, each compared with the recorded fingerprint.
"""

from collections.abc import Mapping

import msgspec

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.checkpoints import CheckpointRef
from apollod.core.facts.recovery import RecoveryState, chosen, differences, differing_choice
from apollod.core.fixed_bits import NO_KEYS, differing_setting, setting
from apollod.core.kernel.composing import composed
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Folds, Handlers
from apollod.core.schedules import SECOND_NS
from apollod.core.shared.missing_anchors import unencoded
from apollod.core.state import State

# --- restoring -------------------------------------------------------------------------------------------------------
# Builds the effect that restores a checkpoint; shared by recovery and rollback.


def restore_from(state: State, origin: CheckpointRef | None) -> fx.Restore:
    """Restore the weights and optimizer of a checkpoint, or those before the first step."""
    recovery = state.recovery
    return fx.Restore(
        path=origin.path if origin else "", model_dir=state.daemon.model_path, weights=True,
        fingerprint=origin.fingerprint if origin else recovery.base_fingerprint,
        checkpoints=f"{state.daemon.state_dir}/checkpoints", base=recovery.base.path if recovery.base else "",
    )  # fmt: skip


# --- folds of events into the state ----------------------------------------------------------------------------------


def _trainer_bound(own: RecoveryState, state: State, e: ev.TrainerBound, at_ns: int) -> None:
    own.base_fingerprint, own.products = own.base_fingerprint or e.fingerprint, e.products


def _base_kept(own: RecoveryState, state: State, e: ev.BaseKept, at_ns: int) -> None:
    own.base, own.base_lost = e, ""


def _base_lost(own: RecoveryState, state: State, e: ev.BaseLost, at_ns: int) -> None:
    own.base, own.base_lost = None, e.reason


def _step_completed(own: RecoveryState, state: State, e: ev.StepCompleted, at_ns: int) -> None:
    """Add the step. `state`: before this event."""
    own.since_ns = own.since_ns if own.since else at_ns
    running = state.training.running
    own.since.append(ev.RecordedStep.of(running.begun if running else None, e, own.products))
    own.learned_with = state.daemon.settings
    own.ran_on = state.children.bound.versions if state.children.bound else {}


def _checkpoint_committed(own: RecoveryState, state: State, e: ev.CheckpointCommitted, at_ns: int) -> None:
    if state.rollback.under_way is None:  # else the trainer is on its way from another one
        _start_from(own, state, CheckpointRef.of(e, at_ns), at_ns)


def _start_from(own: RecoveryState, state: State, ref: CheckpointRef, at_ns: int) -> None:
    """Start recoveries from this checkpoint, unless its steps were taken back while it was written."""
    if ref.step == state.training.version or any(done.step == ref.step for done in own.since):
        own.origin = ref
        own.since = [done for done in own.since if done.step > ref.step]
        own.since_ns = at_ns


def _rollback_started(own: RecoveryState, state: State, e: ev.RollbackStarted, at_ns: int) -> None:
    own.since = list(e.replay)
    own.origin = state.checkpoints.at(e.origin)
    own.learned_with, own.ran_on = state.daemon.settings, e.ran_on


def _rollback_completed(own: RecoveryState, state: State, e: ev.RollbackCompleted, at_ns: int) -> None:
    if state.checkpoints.newest is not None:  # it may have been committed meanwhile
        _start_from(own, state, state.checkpoints.newest, at_ns)


def _carried(own: RecoveryState, state: State, e: ev.JournalCarried, at_ns: int) -> None:
    own.base_fingerprint = e.base_fingerprint


FOLDS: Folds = {
    ev.TrainerBound: _trainer_bound,
    ev.BaseKept: _base_kept,
    ev.BaseLost: _base_lost,
    ev.StepCompleted: _step_completed,
    ev.CheckpointCommitted: _checkpoint_committed,
    ev.RollbackStarted: _rollback_started,
    ev.RollbackCompleted: _rollback_completed,
    ev.JournalCarried: _carried,
}


# --- decisions -------------------------------------------------------------------------------------------------------


def _on_started(state: State, input_: inp.Started, now_ns: int) -> Outcome:
    base = state.recovery.base
    if base is None or not input_.base_problem:
        return nothing()
    return Outcome([ev.BaseLost(path=base.path, reason=input_.base_problem)], [])


def _on_bound(state: State, input_: inp.Bound, now_ns: int) -> Outcome:
    """Restore the optimizer, and the weights if the fingerprint differs."""
    bound = composed(ev.TrainerBound, input_, pid=state.children.trainer.pid)
    if lost := _lost(state):
        return Outcome([bound, *lost], [fx.StopChild("trainer", 0.0)])
    origin = restore_from(state, state.recovery.origin)
    wanted = origin.fingerprint or input_.fingerprint
    restore = msgspec.structs.replace(origin, weights=wanted != input_.fingerprint, fingerprint=wanted)
    return Outcome([bound], [restore, *_keep_base(state, input_)])


def _lost(state: State) -> list[ev.Event]:
    """Go back to before an update by an outside trainer that would have to be written again and was not kept."""
    unkept = state.updates.unkept
    lost = next((unkept[done.step] for done in state.recovery.since if done.step in unkept), None)
    if lost is None:
        return []
    why = f'its tensors were not kept ([control] durable = "{lost.durable}")'
    events: list[ev.Event] = [ev.UpdateLost(lost.update, step=lost.step, to=lost.parent, reason=why)]
    if state.rollback.wanted is None:
        events.append(ev.RollbackRequested(to=lost.parent, by="apollod"))
    return events


def _keep_base(state: State, input_: inp.Bound) -> list[fx.KeepBase]:
    """Keep the base weights as long as memory, just loaded from the model directory, holds them."""
    daemon, recovery = state.daemon, state.recovery
    in_place = state.children.engine_dir == daemon.model_path
    untouched = in_place and input_.fingerprint == (recovery.base_fingerprint or input_.fingerprint)
    how = daemon.settings.checkpoint.keep_base if daemon.settings else "off"
    if how == "off" or recovery.base is not None or not untouched:
        return []
    name = daemon.model_path.rstrip("/").rpartition("/")[2]
    return [fx.KeepBase(model_dir=daemon.model_path, path=f"{daemon.state_dir}/base/{name}", how=how)]


def _on_base(state: State, input_: inp.BaseKept | inp.BaseLost, now_ns: int) -> Outcome:
    """Record the result. Nothing waits for it: only a replay from the beginning needs the base, and status shows its
    loss."""
    return Outcome([input_], [])


def _on_restored(state: State, input_: inp.Restored, now_ns: int) -> Outcome:
    """Run the steps since the checkpoint again, or finish. Halt if the weights are not the checkpoint's."""
    restored = restore_from(state, state.recovery.origin).fingerprint
    wanted = state.training.fingerprint if input_.undone else restored
    if input_.fingerprint != wanted:
        return Outcome([_not_restored(input_.fingerprint, wanted)], [])
    if not state.recovery.since or input_.undone:
        return _attached(state, input_.state_bytes, now_ns, 0, input_.undone)
    if changed := _changed_settings(state):
        return Outcome([changed], [])
    return Outcome([], [_run_again(state.recovery.since[0])])


def _not_restored(found: str, wanted: str) -> ev.TrainingHalted:
    return ev.TrainingHalted(
        reason=f"weights {found} were restored, the journal says {wanted}",
        hint="`apollod ctl resume` tries again; `apollod checkpoint verify` tells what the checkpoints hold",
    )


def _changed_settings(state: State) -> ev.TrainingHalted | None:
    """Halt if settings or threads differ from those of the steps to run again, which would give other bits."""
    then, now, since = state.recovery.learned_with, state.daemon.settings, state.recovery.since
    made_with = f"steps {since[0].step} to {since[-1].step} are in no checkpoint yet and were made with "
    hint = "set [trainer] {} {}, start, run `apollod ctl checkpoint`, then change it"
    if then and now and (name := differing_setting(then, now)):
        was, back, says = setting(then, name), "back", f"the configuration says {setting(now, name)!r}"
        if name in NO_KEYS:
            says = f"this version of apollod makes them with {setting(now, name)!r}"
            hint = "start the earlier version of apollod, run `apollod ctl checkpoint`, then start this one"
    elif name := differing_choice(state.recovery.ran_on, _runs_on(state)):
        was, says = chosen(state.recovery.ran_on, name), f"the trainer runs with {chosen(_runs_on(state), name)!r}"
        back = f"= {was!r}"  # the configuration may say "auto"
    else:
        return None
    return ev.TrainingHalted(reason=f"{made_with}{name} = {was!r}, {says}", hint=hint.format(name, back))


def _runs_on(state: State) -> Mapping[str, str]:
    return state.children.bound.versions if state.children.bound else {}


def _on_step_done(state: State, input_: inp.StepDone, now_ns: int) -> Outcome:
    """Compare a step that was run again with its record: go on if the bits are the same, else halt."""
    since = state.recovery.since
    index = next((i for i, done in enumerate(since) if done.step == input_.step), None)
    if not input_.replay or index is None:
        return nothing()
    done, skipped = since[index], input_.skipped_zero + input_.skipped_nonfinite
    if (input_.fingerprint, input_.applied, skipped) != (done.fingerprint, done.applied, done.skipped):
        return Outcome(_diverged(state, done, input_, skipped), [])
    if index + 1 < len(since):
        return Outcome([], [_run_again(since[index + 1])])
    verified = ev.ReplayVerified(first=since[0].step, last=done.step, fingerprint=done.fingerprint)
    attached = _attached(state, state.children.state_bytes, now_ns, len(since), False)
    return Outcome([verified], []).then(attached)


def _diverged(state: State, done: ev.RecordedStep, found: inp.StepDone, skipped: int) -> list[ev.Event]:
    changed = differences(state.recovery.ran_on, _runs_on(state))
    what = f"put back what changed ({changed})" if changed else "libraries, device and threads are as they were"
    diverged = ev.ReplayDiverged(
        step=done.step, expected=done.fingerprint, found=found.fingerprint,
        detail=f"applied {done.applied} then, {found.applied} now; skipped {done.skipped} then, {skipped} now",
    )  # fmt: skip
    halted = ev.TrainingHalted(
        reason=f"replay of step {done.step} gave {found.fingerprint}, the journal says {done.fingerprint}",
        hint=f"{what}; `apollod ctl resume` tries again",
    )
    return [diverged, halted]


def _run_again(done: ev.RecordedStep) -> fx.RunStep:
    return fx.RunStep(
        done.step, done.examples, done.digests, done.lr, replay=True, products=done.products, **done.terms()
    )  # fmt: skip


def _attached(state: State, state_bytes: int, now_ns: int, replayed: int, undone: bool) -> Outcome:
    """Record that weights and optimizer are at the last step; go on with the open step and the queue. `undone`: reached
    by undoing steps in memory."""
    origin, back, bound = restore_from(state, state.recovery.origin), state.rollback.under_way, state.children.bound
    memory_was_right = undone or (back is None and bound is not None and bound.fingerprint == origin.fingerprint)
    version, fingerprint = state.training.version, state.training.fingerprint
    events: list[ev.Event] = [
        ev.TrainerAttached(
            pid=state.children.trainer.pid, step=version, fingerprint=fingerprint, replayed=replayed,
            restored="" if memory_was_right else origin.path or "base", state_bytes=state_bytes,
        )
    ]  # fmt: skip
    if back is not None:
        events.append(
            ev.RollbackCompleted(
                to=back.to, from_step=back.from_step, fingerprint=fingerprint,
                how="memory" if undone else "checkpoint", replayed=replayed,
                seconds=max(0, now_ns - state.rollback.started_ns) / SECOND_NS,
            )
        )  # fmt: skip
    effects: list[fx.Effect] = [fx.RefreshEngine(version)]
    if state.training.running is not None:
        effects.append(fx.RunStep.of(state.training.running.begun))
    effects += fx.encode((w.example for w in state.intake.untokenised), state.recovery.base_fingerprint)
    return Outcome(events, [*effects, *unencoded(state)])


HANDLERS: Handlers = {
    inp.Started: _on_started,
    inp.Bound: _on_bound,
    inp.BaseKept: _on_base,
    inp.BaseLost: _on_base,
    inp.Restored: _on_restored,
    inp.StepDone: _on_step_done,
}


# --- status ----------------------------------------------------------------------------------------------------------


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """The untrained weights."""

    kept: bool = False
    path: str | None = None
    how: str | None = None
    reason: str = ""
    """why they are not kept"""


def status(state: State) -> Base:
    """The kept weights of version 0, or the reason why there are none."""
    own, settings = state.recovery, state.daemon.settings
    if own.base is not None:
        return Base(kept=True, path=own.base.path, how=own.base.how)
    off = settings is not None and settings.checkpoint.keep_base == "off"
    return Base(reason=own.base_lost or ('[checkpoint] keep_base = "off"' if off else "not kept yet"))
