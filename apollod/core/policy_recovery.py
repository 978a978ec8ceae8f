"""From what a crash or a restart left behind to weights and optimizer at the journal's last step.

The trainer reports what it finds in memory (`Bound`). Where memory is not the newest checkpoint, the checkpoint is
restored into it; the steps since are then run again one by one, each compared with the recorded fingerprint.
"""

from typing import Any

import msgspec

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.policy_train import encode_effect
from apollod.core.state import SECOND_NS, CheckpointRef, State

Outcome = tuple[list[ev.Event], list[fx.Effect]]

BITS_DEPEND_ON = (
    "optimizer", "rank", "scale", "betas", "weight_decay", "rounding", "seed", "max_tokens", "moments", "limiter", "layers", "freeze",
)  # fmt: skip
"""Settings that a step does not record itself. Recomputing layers (`checkpointing`) changes no bit."""


def on_started(state: State, input_: inp.Started, now_ns: int) -> Outcome:
    """Begin a life of the daemon. A checkpoint whose writing was under way is settled before any child starts."""
    events: list[ev.Event] = [
        ev.DaemonStarted(
            pid=input_.pid, version_name=input_.version_name, settings=input_.settings, state_dir=input_.state_dir
        )
    ]
    if changed := _changes(state.settings, input_.settings):
        events.append(ev.ConfigChanged(changed))
    if state.base is not None and input_.base_problem:
        events.append(ev.BaseLost(path=state.base.path, reason=input_.base_problem))
    if state.model_path and state.model_path != input_.settings.model_path:
        events.append(
            ev.TrainingHalted(
                reason=f"this journal belongs to the model {state.model_path}, the configuration names {input_.settings.model_path}",
                hint="set [model] path back, or use another [state] dir for the other model",
            )
        )
    return events, [fx.RemoveCheckpoint(state.removed)] if state.removed else []  # a crash may have come in between


def _changes(before: ev.Settings | None, now: ev.Settings) -> dict[str, list[Any]]:
    """[before, now] of every setting that differs, as JSON values."""
    if before is None:
        return {}
    old, new = (msgspec.json.decode(msgspec.json.encode(settings)) for settings in (before, now))
    return {name: [old[name], new[name]] for name in new if old[name] != new[name]}


def restore_from(state: State, origin: CheckpointRef | None) -> fx.Restore:
    """To a checkpoint's weights and optimizer, or to those before the first step."""
    return fx.Restore(
        path=origin.path if origin else "", model_dir=state.model_path, weights=True,
        fingerprint=origin.fingerprint if origin else state.base_fingerprint,
        checkpoints=f"{state.state_dir}/checkpoints", base=state.base.path if state.base else "",
    )  # fmt: skip


def on_bound(state: State, input_: inp.Bound, now_ns: int) -> Outcome:
    """Restore what memory does not hold: the optimizer always, the weights where the fingerprint differs."""
    bound = ev.TrainerBound(
        pid=state.trainer.pid, fingerprint=input_.fingerprint, parameters=input_.parameters,
        elements=input_.elements, versions=input_.versions, held=input_.held, tied=input_.tied,
    )
    origin = restore_from(state, state.origin)
    wanted = origin.fingerprint or input_.fingerprint
    restore = msgspec.structs.replace(origin, weights=wanted != input_.fingerprint, fingerprint=wanted)
    return [bound], [restore, *_keep_base(state, input_)]


def _keep_base(state: State, input_: inp.Bound) -> list[fx.KeepBase]:
    """Ask for it while memory shows that the model directory, from which it was just loaded, holds the base weights."""
    untouched = state.engine_dir == state.model_path and input_.fingerprint == (state.base_fingerprint or input_.fingerprint)
    how = state.settings.keep_base if state.settings else "off"
    if how == "off" or state.base is not None or not untouched:
        return []
    name = state.model_path.rstrip("/").rpartition("/")[2]
    return [fx.KeepBase(model_dir=state.model_path, path=f"{state.state_dir}/base/{name}", how=how)]


def on_base_done(state: State, input_: inp.BaseDone, now_ns: int) -> Outcome:
    """Nothing waits for it: without it only a replay from the very beginning is in danger, and status says so."""
    if input_.error:
        return [ev.BaseLost(path=input_.path, reason=input_.error)], []
    return [ev.BaseKept(path=input_.path, how=input_.how, bytes=input_.bytes, seconds=input_.seconds)], []


def on_restored(state: State, input_: inp.Restored, now_ns: int) -> Outcome:
    """Run the steps since the checkpoint again, or be done. Weights that are not the checkpoint's are not gone on with."""
    wanted = state.fingerprint if input_.undone else restore_from(state, state.origin).fingerprint
    if input_.fingerprint != wanted:
        return [_not_restored(input_.fingerprint, wanted)], []
    if not state.since or input_.undone:
        return _attached(state, input_.state_bytes, now_ns, 0, input_.undone)
    if changed := _changed_settings(state):
        return [changed], []
    return [], [_replay(state, 0)]


def _not_restored(found: str, wanted: str) -> ev.TrainingHalted:
    return ev.TrainingHalted(
        reason=f"weights {found} were restored, the journal says {wanted}",
        hint="`apollod ctl resume` tries again; `apollod checkpoint verify` tells what the checkpoints hold",
    )


def _changed_settings(state: State) -> ev.TrainingHalted | None:
    """Steps are run again as they were made; with other settings they would only give other bits."""
    then, now = state.learned_with, state.settings
    name = differing_setting(then, now)
    if then is None or name is None:
        return None
    key = f"{name} = {getattr(then, name)!r}"
    return ev.TrainingHalted(
        reason=f"steps {state.since[0].step} to {state.since[-1].step} are in no checkpoint yet and were made with {key}, the "
        f"configuration says {getattr(now, name)!r}",
        hint=f"set [trainer] {name} back, start, run `apollod ctl checkpoint`, then change it",
    )


def differing_setting(then: ev.Settings | None, now: ev.Settings | None) -> str | None:
    """Name of a setting that the bits of a step depend on and that is not the same in both."""
    return next((name for name in BITS_DEPEND_ON if getattr(then, name, None) != getattr(now, name, None)), None)


def on_replayed(state: State, input_: inp.StepDone, now_ns: int) -> Outcome:
    """One replayed step: the same bits, or stop."""
    index = next((i for i, done in enumerate(state.since) if done.step == input_.step), None)
    if index is None:
        return [], []
    done = state.since[index]
    same = input_.fingerprint == done.fingerprint and input_.applied == done.applied
    if not same or input_.skipped_zero + input_.skipped_nonfinite != done.skipped:
        diverged = ev.ReplayDiverged(
            step=done.step, expected=done.fingerprint, found=input_.fingerprint,
            detail=f"applied {done.applied} then, {input_.applied} now; skipped {done.skipped} then, "
            f"{input_.skipped_zero + input_.skipped_nonfinite} now",
        )
        halted = ev.TrainingHalted(
            reason=f"replay of step {done.step} gave {input_.fingerprint}, the journal says {done.fingerprint}",
            hint="torch, thread count or CPU differ from the first run; put them back and `apollod ctl resume`",
        )
        return [diverged, halted], []
    if index + 1 < len(state.since):
        return [], [_replay(state, index + 1)]
    verified = ev.ReplayVerified(first=state.since[0].step, last=done.step, fingerprint=done.fingerprint)
    events, effects = _attached(state, state.state_bytes, now_ns, len(state.since), False)
    return [verified, *events], effects


def _replay(state: State, index: int) -> fx.RunStep:
    done = state.since[index]
    return fx.RunStep(done.step, done.examples, done.digests, done.lr, done.loss_limit, replay=True)


def _attached(state: State, state_bytes: int, now_ns: int, replayed: int, undone: bool) -> Outcome:
    """Weights and optimizer are at the last step: go on with the open step and the queue. `undone`: by undoing steps in memory."""
    origin, back = restore_from(state, state.origin), state.rolling_back
    memory_was_right = undone or (back is None and state.bound is not None and state.bound.fingerprint == origin.fingerprint)
    attached = ev.TrainerAttached(
        pid=state.trainer.pid, step=state.version, fingerprint=state.fingerprint, replayed=replayed,
        restored="" if memory_was_right else origin.path or "base",
        state_bytes=state_bytes,
    )
    done: list[ev.Event] = []
    if back is not None:
        done.append(
            ev.RollbackCompleted(
                to=back.to, from_step=back.from_step, fingerprint=state.fingerprint, how="memory" if undone else "checkpoint",
                replayed=replayed, seconds=max(0, now_ns - state.rollback_ns) / SECOND_NS,
            )
        )
    effects: list[fx.Effect] = [fx.RefreshEngine(state.version)]
    if state.running is not None:
        r = state.running
        effects.append(fx.RunStep(r.step, r.examples, r.digests, r.lr, r.loss_limit))
    return [attached, *done], effects + encode_effect([w.example for w in state.untokenised])


def on_refused(state: State, input_: inp.Refused, now_ns: int) -> Outcome:
    """The trainer will not work with what it was given: training halts with its reason, serving goes on."""
    if state.halted:
        return [], []
    return [ev.TrainingHalted(reason=input_.reason, hint=input_.hint)], []
