"""Determines whether a write of the trainer is fenced."""

from collections.abc import Sequence

from apollod.core import events as ev
from apollod.core.state import State


def fence_closed(state: State, events: Sequence[ev.Event]) -> bool:
    """True if the trainer may write now: no fence is wanted, it is closed, or it expired. `events`: of the present
    decision, not folded yet."""
    settings, publishing = state.daemon.settings, state.publishing
    if settings is None or settings.trainer.publish != "fenced":
        return True
    if state.children.engine.phase != "ready" or publishing.engine_paused:
        return True
    anew = any(isinstance(event, ev.StepStarted | ev.TrainerAttached) for event in events)
    if publishing.fence_expired and not anew:
        return True
    return any(isinstance(event, ev.EnginePaused) for event in events)


def fence_pending(state: State) -> bool:
    """True if a step that has begun still waits for its pause, and is unknown to the trainer."""
    return state.training.running is not None and not fence_closed(state, ())
