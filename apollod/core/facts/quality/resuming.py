"""Decides when examples rolled back by an alarm, and cleared by the search, may be learned again. Pure."""

from apollod.core.facts.quality.day import stops
from apollod.core.facts.quality.state import Incident, QualityState


def may_repeat(own: QualityState, incident: Incident) -> bool:
    """True if examples rolled back by the alarm may be learned again. If the cause is unknown or the
    learning rate, or alarms were too frequent, only a person can decide that."""
    if incident.phase != "named":
        return False
    unknown = incident.verdict in ("elsewhere", "rate") or incident.restored == "bad"
    return incident.resumed or (not unknown and not stops(own.alarms_ns))
