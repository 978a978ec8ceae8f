"""Checkpoints: weights on disk, how long they stay, and the command run after one. Decisions, folds and status."""

from itertools import chain, count

import msgspec

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked, orphaned_checkpoint
from apollod.core.facts.checkpoints import CheckpointRef, CheckpointsState
from apollod.core.facts.quality.looking import before_checkpoint
from apollod.core.kernel.composing import composed
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Folds, Handlers
from apollod.core.rules.publishing import fence_pending
from apollod.core.schedules import CHECKPOINT_RETRY_S, SECOND_NS, falls_due
from apollod.core.settings import CheckpointSettings, Settings
from apollod.core.state import State

# --- due -------------------------------------------------------------------------------------------------------------
# Decides when the next automatic checkpoint is due.


def due_ns(state: State, now_ns: int) -> int | None:
    """Time at which the next checkpoint is due; `now_ns` if it is due already. None: nothing is unsaved, or no time is
    set.

    `delay_s` after the last step; while steps go on, `every_s` after the first unsaved one, or after the checkpoint
    before it. At once if a recovery would have too many steps to run again, if the work of a night is done, and after a
    rollback, so that the model directory does not hold steps that were taken back. After a failure, not before the
    retry time.
    """
    if not state.unsaved:
        return None
    retry_ns = falls_due(now_ns, state.checkpoints.retry_ns - int(CHECKPOINT_RETRY_S * SECOND_NS), CHECKPOINT_RETRY_S)
    if state.taken_back:
        return retry_ns
    settings = state.daemon.settings
    if settings is None:
        return None
    if len(state.recovery.since) >= settings.checkpoint.replay_max:
        return retry_ns
    if _night_is_done(state):
        return retry_ns
    times = []
    if _no_step_follows(state):
        times.append(falls_due(now_ns, state.training.last_step_ns, settings.checkpoint.delay_s))
    if state.training.window is not None and settings.checkpoint.every_s:
        times.append(falls_due(now_ns, state.recovery.since_ns, settings.checkpoint.every_s))
    return max(retry_ns, min(times)) if times else None


def _night_is_done(state: State) -> bool:
    """True if examples of the night are unsaved, and no more follow in this one."""
    schedule = state.schedule
    return schedule.unsaved and state.training.running is None and not (schedule.open and state.intake.pending)


def _no_step_follows(state: State) -> bool:
    """True if the last step is the last one for now: none runs, and none can begin."""
    if state.training.running is not None:
        return False
    return not state.intake.pending or bool(blocked(Activity.STEP, state))


# --- folds of events into the state ----------------------------------------------------------------------------------


def _daemon_started(own: CheckpointsState, state: State, e: ev.DaemonStarted, at_ns: int) -> None:
    own.last_one_failed = False


def _started(own: CheckpointsState, state: State, e: ev.CheckpointStarted, at_ns: int) -> None:
    own.open = e


def _committed(own: CheckpointsState, state: State, e: ev.CheckpointCommitted, at_ns: int) -> None:
    own.open = None
    ref = CheckpointRef.of(e, at_ns)
    own.committed = [c for c in own.committed if c.path != e.path] + [ref]
    own.hook_due = ref


def _failed(own: CheckpointsState, state: State, e: ev.CheckpointFailed, at_ns: int) -> None:
    own.open = None
    own.retry_ns = at_ns + int(CHECKPOINT_RETRY_S * SECOND_NS)
    own.last_one_failed = state.daemon.stopping


def _removed(own: CheckpointsState, state: State, e: ev.CheckpointRemoved, at_ns: int) -> None:
    own.committed = [c for c in own.committed if c.path != e.path]
    own.removed = e.path


def _hook_done(own: CheckpointsState, state: State, e: ev.HookCompleted | ev.HookFailed, at_ns: int) -> None:
    due = own.hook_due
    if due is not None and (due.step, due.path) == (e.step, e.path or due.path):
        own.hook_due = None


FOLDS: Folds = {
    ev.DaemonStarted: _daemon_started,
    ev.CheckpointStarted: _started,
    ev.CheckpointCommitted: _committed,
    ev.CheckpointFailed: _failed,
    ev.CheckpointRemoved: _removed,
    ev.HookCompleted: _hook_done,
    ev.HookFailed: _hook_done,
}


# --- decisions -------------------------------------------------------------------------------------------------------

DAMAGED_HINT = (
    "`apollod replay --to STEP --out DIR` writes the weights of an earlier step; go on from those, with a lower "
    "[trainer] lr and another [state] dir"
)


def advance(state: State, now_ns: int) -> Outcome:
    """Write a checkpoint that is due or that a shutdown needs; remove surplus ones."""
    settings = state.daemon.settings
    if settings is None:
        return nothing()
    if state.daemon.stopping:
        running, failed = state.training.running, state.checkpoints.last_one_failed
        wanted = state.unsaved and running is None and not failed
        return _write(state, "shutdown") if wanted else nothing()
    if _is_due(state, now_ns):
        return _look_first(state) if _is_looked_at_first(state, settings) else _write(state, "due")
    surplus = _surplus(state, settings.checkpoint)
    if surplus is None:
        return nothing()
    return Outcome([ev.CheckpointRemoved(step=surplus.step, path=surplus.path)], [fx.RemoveCheckpoint(surplus.path)])


def repeat(state: State, now_ns: int) -> list[fx.Effect]:
    """Observe an open checkpoint whose writer is gone: the files on disk decide. Run the user's command."""
    effects = [] if state.daemon.stopping else _run_hook(state)
    if (open_ := state.checkpoints.open) is not None and orphaned_checkpoint(state):
        effects.append(fx.ObserveCheckpoint(open_.step, open_.path))
    return effects


def _run_hook(state: State) -> list[fx.Effect]:
    """Run the command for the newest checkpoint until it is reported, also after a restart of the daemon."""
    due, settings = state.checkpoints.hook_due, state.daemon.settings
    if due is None or settings is None or not settings.checkpoint_hook:
        return []
    return [fx.RunHook(due.step, due.path, due.fingerprint)]


def _is_due(state: State, now_ns: int) -> bool:
    """True if a checkpoint is due and may begin, also during a step: the trainer works in order, so it includes that
    step."""
    at_ns = due_ns(state, now_ns)
    return at_ns is not None and at_ns <= now_ns and not blocked(Activity.CHECKPOINT, state)


def _is_looked_at_first(state: State, settings: Settings) -> bool:
    return before_checkpoint(state.quality, settings.quality) and state.children.engine.phase == "ready"


def _look_first(state: State) -> Outcome:
    """Ask the guard for one look; the checkpoint waits for its result or its failure."""
    if state.quality.asked or state.quality.open is not None:
        return nothing()
    return Outcome([ev.QualityWished(by="a checkpoint that is due", checkpoint=True)], [])


def _surplus(state: State, settings: CheckpointSettings) -> CheckpointRef | None:
    """The oldest checkpoint, if there are too many or too large ones; else None.

    Never the one from which a recovery starts, nor any after it: after a rollback the way to its weights leads from the
    model directory over the delta of every checkpoint that was written since (docs/decisions/0012).
    """
    committed = state.checkpoints.committed
    if state.recovery.origin not in committed[1:] or blocked(Activity.REMOVAL, state):
        return None
    oldest = committed[0]
    many = len(committed) > max(1, settings.keep)
    limit = state.daemon.history_bytes if settings.keep_bytes == "auto" else settings.keep_bytes
    large = 0 < limit < sum(c.bytes for c in committed)
    return oldest if many or large else None


def _on_requested(state: State, input_: inp.CheckpointRequested, now_ns: int) -> Outcome:
    return _write(state, input_.why)


def _write(state: State, why: str) -> Outcome:
    """Write the weights as they are after the running step, if one runs: the trainer works in order."""
    running = None if fence_pending(state) else state.training.running  # that step is not the trainer's yet
    saved = state.checkpoints.newest is not None and not state.unsaved and running is None
    if saved or blocked(Activity.REQUESTED_CHECKPOINT, state):
        return nothing()
    step = running.step if running else state.training.version
    path, full = _free_path(state, step), _full_due(state)
    started = ev.CheckpointStarted(step=step, path=path, why=why, full=full)
    return Outcome([started], [fx.WriteCheckpoint(step=step, path=path, model_dir=state.daemon.model_path, full=full)])


def _free_path(state: State, step: int) -> str:
    """A directory that is not in use: after a rollback, weights of one step may be written a second time."""
    path = f"{state.daemon.state_dir}/checkpoints/step-{step:08d}"
    taken = {state.checkpoints.removed, *(c.path for c in state.checkpoints.committed)}
    return next(p for p in chain([path], (f"{path}-{n}" for n in count(2))) if p not in taken)


def _full_due(state: State) -> bool:
    """True if the deltas since the last full copy exceed half the model's size: then one more copy costs less than they
    do."""
    grown = 0
    for ref in state.checkpoints.committed:
        grown = 0 if ref.full else grown + ref.delta_bytes
    return state.children.engine_facts is not None and 2 * grown > state.children.engine_facts.bytes


def _on_written(state: State, input_: inp.CheckpointWritten, now_ns: int) -> Outcome:
    """Record it as committed, unless writing failed or the weights differ from the journal's."""
    open_ = state.checkpoints.open
    if open_ is None or open_.path != input_.path:
        return nothing()
    if input_.doubtful:
        return Outcome([], [fx.ObserveCheckpoint(input_.step, input_.path)])
    error = input_.error or ("" if input_.fingerprint else "its writer ended before it was committed")
    if error := error or _mismatch(state, input_.step, input_.fingerprint):
        events: list[ev.Event] = [ev.CheckpointFailed(step=input_.step, path=input_.path, reason=error)]
        if input_.damaged and not state.daemon.halted:
            events.append(ev.TrainingHalted(reason=error, hint=DAMAGED_HINT))
        return Outcome(events, [])
    committed = composed(ev.CheckpointCommitted, input_, full=open_.full)
    return Outcome([committed], [])


def _mismatch(state: State, step: int, fingerprint: str) -> str:
    """Difference between written weights of `step` and the journal's; empty: none, or not known."""
    recorded = {done.step: done.fingerprint for done in state.recovery.since}
    recorded[state.training.version] = state.training.fingerprint
    if recorded.get(step, fingerprint) == fingerprint:
        return ""
    return f"the checkpoint's fingerprint is {fingerprint}, the journal's {recorded[step]}"


def _on_hook_done(state: State, input_: inp.HookCompleted | inp.HookFailed, now_ns: int) -> Outcome:
    """Record the result only: the checkpoint stays committed even if its copy failed."""
    return Outcome([input_], [])


def _on_started(state: State, input_: inp.Started, now_ns: int) -> Outcome:
    """Repeat the last removal: a crash may have come between decision and removal."""
    removed = state.checkpoints.removed
    return Outcome([], [fx.RemoveCheckpoint(removed)] if removed else [])


HANDLERS: Handlers = {
    inp.Started: _on_started,
    inp.CheckpointRequested: _on_requested,
    inp.CheckpointWritten: _on_written,
    inp.HookCompleted: _on_hook_done,
    inp.HookFailed: _on_hook_done,
}


# --- status ----------------------------------------------------------------------------------------------------------


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The newest committed checkpoint (null: none), and totals of all."""

    step: int | None
    at: float | None
    """Unix time of its commit"""
    fingerprint: str | None
    path: str | None = None
    steps_since: int = 0
    """steps that a crash would have run again"""
    kept: int = 0
    """checkpoints available for a rollback"""
    bytes: int = 0
    """total size"""
    due_in_s: float | None = None
    """seconds until the next automatic one; 0: as soon as `activities` allows it; null: nothing is unsaved"""


def status(state: State, now_ns: int) -> Checkpoint:
    """The newest and the next checkpoint, and totals of all."""
    own, due = state.checkpoints, due_ns(state, now_ns)
    newest = own.newest
    return Checkpoint(
        step=newest.step if newest else None, at=newest.at_ns / SECOND_NS if newest else None,
        fingerprint=newest.fingerprint if newest else None, path=newest.path if newest else None,
        steps_since=len(state.recovery.since), kept=len(own.committed), bytes=sum(c.bytes for c in own.committed),
        due_in_s=None if due is None else round(max(0, due - now_ns) / SECOND_NS, 3),
    )  # fmt: skip
