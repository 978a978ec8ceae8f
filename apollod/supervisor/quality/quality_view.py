"""The section of `status` about the quality guard. Pure."""

from apollod.core.activities import Activity, blocked
from apollod.core.quality.last_look import last_look
from apollod.core.quality.looking import due
from apollod.core.settings import QualitySettings
from apollod.core.state import State
from apollod.wire.status_sections.quality_status import Alarm, Quality, QualityMetric


def quality_status(state: State) -> Quality:
    """The last look's figures and the incident under way."""
    own, settings = state.quality, state.daemon.settings
    why = "" if settings is None else due(own, settings.quality) or ""
    waits = blocked(Activity.MEASUREMENT, state) if (why and own.open is None) else ""
    incident, last = own.incident, max(own.looked, own.at)
    found = last_look(own, settings.quality if settings is not None else QualitySettings())
    return Quality(
        enabled=settings is not None and settings.quality.every_steps > 0, looks=own.number,
        baseline=own.at if own.baseline else None, step=last if last >= 0 else None, due=why, asked=own.asked,
        running=own.open is not None, reason=waits, error=own.error, untold=own.telling.error,
        references_lost=own.references_lost,
        metrics=[QualityMetric(**one._asdict()) for one in found], failed=own.totals.failed,
        look_s=own.last_s or None, incidents=own.incidents, taken_back=own.totals.taken_back,
        replays=own.totals.replays,
        incident=None if incident is None else Alarm(
            number=incident.number, step=incident.step, to=incident.to, metrics=list(incident.metrics),
            phase=incident.phase, reason=incident.reason, replays=len(incident.replays),
            replays_max=incident.replays_max, verdict=incident.verdict or "",
            culprits=list(incident.culprits), again=len(incident.again),
        ),
    )  # fmt: skip
