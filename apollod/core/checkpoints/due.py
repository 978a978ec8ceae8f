"""Decides when the next automatic checkpoint is due."""

from apollod.core.activities import Activity, blocked
from apollod.core.schedules import CHECKPOINT_RETRY_S, SECOND_NS, falls_due
from apollod.core.state import State


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
