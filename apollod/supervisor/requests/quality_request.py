"""Requests for measurements of quality."""

from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.quality.looking import takes_baseline
from apollod.supervisor.requests.asked import Daemon
from apollod.wire import messages as msg


async def measure_quality(daemon: Daemon, request: msg.QualityRequest) -> msg.Answer:
    """Request a measurement; answered when it is recorded, with the number of that event, after which the measurement
    follows, and the reason why it waits."""
    loop = daemon.loop
    own = loop.state.quality
    if (incident := own.incident) is not None and not (request.baseline and takes_baseline(own)):
        return msg.Failure(
            f"alarm {incident.number} of the quality guard is not settled, and nothing is measured before it is",
            f"`apollod ctl quality incident show {incident.number}` tells of it, `apollod ctl resume` goes on",
            retryable=True,
        )
    recorded = await loop.submit(inp.QualityWanted(request.by or "ctl", request.baseline))
    return msg.Reply(
        {
            "schema_version": 1,
            "baseline": request.baseline,
            "after": recorded[0].seq,
            "step": loop.state.training.version,
            "reason": blocked(Activity.MEASUREMENT, loop.state) if loop.state.quality.open is None else "",
        }
    )
