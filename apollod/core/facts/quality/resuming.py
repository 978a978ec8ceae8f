"""Decides what an incident waits for, when its innocent examples may be learned again, and when the alarms of a day are
too many. Pure."""

from collections.abc import Sequence
from typing import Literal

from apollod.core.facts.quality.state import Incident, QualityState
from apollod.core.schedules import DAY_NS, SECOND_NS, is_recent

WaitsFor = Literal["weights", "search", "steps", "person"]
"""weights: the last good ones come back; search: for the harmful examples; steps: innocent ones are repeated; person:
resumes, since the cause is unknown or the learning rate, alarms were too frequent, or the settings say so"""

ALARMS_MAX = 3
"""alarms within DAY_S after which nothing is learned until a person resumes"""
DAY_S = DAY_NS / SECOND_NS


def with_alarm(alarms_ns: Sequence[int], at_ns: int) -> tuple[int, ...]:
    """The alarms of the last 24 hours, with one more now. Later times date from before the clock was put back and do
    not count (`schedules.is_recent`)."""
    return (*(one for one in alarms_ns if is_recent(at_ns, one, DAY_S)), at_ns)


def stops(alarms_ns: Sequence[int]) -> bool:
    """True if these alarms stop training. Independent of the clock: training does not go on because a day is over, only
    after a person resumes, which empties the list."""
    return len(alarms_ns) >= ALARMS_MAX


def may_repeat(own: QualityState, incident: Incident) -> bool:
    """True if examples rolled back by the alarm may be learned again. If the cause is unknown or the
    learning rate, or alarms were too frequent, only a person can decide that."""
    if incident.phase != "named":
        return False
    unknown = incident.verdict in ("elsewhere", "rate") or incident.restored == "bad"
    return incident.resumed or (not unknown and not stops(own.alarms_ns))


def waits_for(own: QualityState, incident: Incident, manual: bool) -> WaitsFor:
    """The next thing that an open incident needs. `manual`: `[quality] resume` says so."""
    if incident.phase == "alarmed":
        return "weights"
    if incident.phase in ("restored", "searching"):
        return "search"
    if incident.phase == "stuck" or not may_repeat(own, incident):
        return "person"
    return "steps" if incident.resumed or not (manual or incident.step == incident.to) else "person"
