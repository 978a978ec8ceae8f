"""When what an alarm took back and the search found innocent may be learned again. Pure."""

from apollod.core.quality.day import stops
from apollod.core.quality.state import Incident, QualityState


def may_repeat(own: QualityState, incident: Incident) -> bool:
    """Is it safe to learn again what the alarm took back? Where it is not known what did it, or alarms were too many,
    only if a person says so."""
    if incident.phase != "named":
        return False
    return incident.resumed or (incident.verdict != "elsewhere" and not stops(own.alarms_ns))
