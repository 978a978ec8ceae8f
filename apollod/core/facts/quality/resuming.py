"""Decides what an incident waits for, and when its innocent examples may be learned again. Pure."""

from typing import Literal

from apollod.core.facts.quality.day import stops
from apollod.core.facts.quality.state import Incident, QualityState

WaitsFor = Literal["weights", "search", "steps", "person"]
"""weights: the last good ones come back; search: for the harmful examples; steps: innocent ones are repeated; person:
resumes, since the cause is unknown or the learning rate, alarms were too frequent, or the settings say so"""


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
