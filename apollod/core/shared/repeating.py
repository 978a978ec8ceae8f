"""Chooses the next step to repeat after a rollback that removed other examples. Pure."""

from apollod.core.facts.quality.state import may_repeat
from apollod.core.facts.training import Learned
from apollod.core.state import State


def next_repeat(state: State) -> Learned | None:
    """The next step to repeat, without examples removed since; None: nothing to repeat."""
    again = repeats(state)
    incident = state.quality.incident
    if not again or (incident is not None and not may_repeat(state.quality, incident)):
        return None
    gone = state.review.held.keys() | state.review.dismissed.keys() | state.intake.withdrawn.keys()
    gone |= state.forgetting.wanted.keys()
    left = (step if gone.isdisjoint(step.examples) else step.without(gone) for step in again)
    return next((one for one in left if one.examples), None)


def repeats(state: State) -> tuple[Learned, ...]:
    """Steps to be repeated: by an alarm of the quality guard, else by a forgetting under way; the two never overlap."""
    incident, forgetting = state.quality.incident, state.forgetting.under_way
    if incident is not None:
        return incident.again
    return forgetting.again if forgetting is not None and forgetting.phase == "again" else ()
