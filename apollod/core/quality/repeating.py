"""What an alarm took back and the search found innocent: which step repeats it next. Pure."""

import msgspec

from apollod.core.quality.day import stops
from apollod.core.quality.state import Incident, Learned, QualityState
from apollod.core.state import State


def may_repeat(own: QualityState, incident: Incident) -> bool:
    """Is it safe to learn again what the alarm took back? Where it is not known what did it, or alarms were too many,
    only if a person says so."""
    if incident.phase != "named":
        return False
    return incident.resumed or (incident.verdict != "elsewhere" and not stops(own.alarms_ns))


def next_repeat(state: State) -> Learned | None:
    """The step that is repeated next, with those of its examples that nobody has taken away since; None: none is."""
    own = state.quality
    if own.incident is None or not own.incident.again or not may_repeat(own, own.incident):
        return None
    found = (_still_wanted(state, one) for one in own.incident.again)
    return next((one for one in found if one.examples), None)


def _still_wanted(state: State, step: Learned) -> Learned:
    gone = state.review.held.keys() | state.review.dismissed.keys() | state.intake.withdrawn.keys()
    if gone.isdisjoint(step.examples):
        return step
    left = [pair for pair in zip(step.examples, step.digests, strict=True) if pair[0] not in gone]
    return msgspec.structs.replace(step, examples=tuple(e for e, _ in left), digests=tuple(d for _, d in left))
