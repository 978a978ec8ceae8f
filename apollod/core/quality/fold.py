"""How facts change what is known of the model's quality."""

from apollod.core.daemon.events import DaemonStarted
from apollod.core.kernel.folding import Folds
from apollod.core.quality import news
from apollod.core.quality.baseline import RUNS_MIN
from apollod.core.quality.day import with_alarm
from apollod.core.quality.events import (
    QualityAlarmed,
    QualityFailed,
    QualityMeasured,
    QualityRequested,
    QualitySettled,
    QualityTold,
    QualityWished,
)
from apollod.core.quality.looking import baselines, known
from apollod.core.quality.sequential import renewed
from apollod.core.quality.state import GUARD, Incident, Measuring, QualityState
from apollod.core.rollback.events import RollbackCompleted, RollbackRefused
from apollod.core.schedules import SECOND_NS
from apollod.core.state import State


def _daemon_started(own: QualityState, state: State, e: DaemonStarted, at_ns: int) -> None:
    own.failures, own.retry_ns, own.retry_s, own.error = 0, 0, 0.0, ""
    news.begun(own.telling, e.settings.on_alarm)


def _wished(own: QualityState, state: State, e: QualityWished, at_ns: int) -> None:
    if own.asked != "baseline":
        own.asked = "baseline" if e.baseline else "run"


def _requested(own: QualityState, state: State, e: QualityRequested, at_ns: int) -> None:
    own.number, own.open = e.number, Measuring(e.number, e.why, e.step)


def _measured(own: QualityState, state: State, e: QualityMeasured, at_ns: int) -> None:
    own.open, own.failures, own.retry_ns, own.retry_s, own.error = None, 0, 0, 0.0, ""
    if e.why != "baseline":
        own.metrics, own.looked, own.good = dict(e.after), e.step, e.step
        own.asked = "baseline" if own.asked == "baseline" else ""  # a look that was under way is no answer to that
        return
    if (own.probes, own.at) != (e.probes, e.step):
        own.runs = []  # of other probes, or of other weights
    own.probes, own.at = e.probes, e.step
    own.runs.append(known(e.figures))
    if len(own.runs) >= RUNS_MIN:
        own.baseline, own.runs, own.asked = baselines(own.runs), [], ""
        own.metrics, own.looked, own.good = {}, -1, e.step


def _failed(own: QualityState, state: State, e: QualityFailed, at_ns: int) -> None:
    own.open, own.failures, own.error = None, own.failures + 1, e.reason
    own.retry_ns, own.retry_s = at_ns + int(e.retry_s * SECOND_NS), e.retry_s


def _alarmed(own: QualityState, state: State, e: QualityAlarmed, at_ns: int) -> None:
    own.incidents, own.good = e.incident, e.to
    own.incident = Incident(e.incident, e.step, e.to, e.metrics, "restored" if e.step == e.to else "alarmed")
    own.alarms_ns = with_alarm(own.alarms_ns, at_ns)
    news.alarmed(own.telling, e, at_ns, _is_told(state))


def _settled(own: QualityState, state: State, e: QualitySettled, at_ns: int) -> None:
    own.incident = None
    if e.by != GUARD:
        own.alarms_ns = ()
    own.metrics = {name: renewed(one) for name, one in own.metrics.items()}
    news.settled(own.telling, e, at_ns, _is_told(state))


def _told(own: QualityState, state: State, e: QualityTold, at_ns: int) -> None:
    news.told(own.telling, e, at_ns)


def _is_told(state: State) -> bool:
    """Does anybody want to know of alarms?"""
    return state.daemon.settings is not None and state.daemon.settings.on_alarm


def _refused(own: QualityState, state: State, e: RollbackRefused, at_ns: int) -> None:
    if own.incident is not None and own.incident.phase == "alarmed" and e.to == own.incident.to:
        own.incident.phase, own.incident.reason = "stuck", e.reason


def _rolled_back(own: QualityState, state: State, e: RollbackCompleted, at_ns: int) -> None:
    """Also one that a person asked for: what was seen of other weights does not count."""
    own.metrics = {name: renewed(one) for name, one in own.metrics.items()}
    own.looked = e.to if own.baseline else -1
    own.good = min(own.good, e.to)  # a later step is not there any more
    if own.incident is not None:
        own.incident.phase, own.incident.reason = "restored", ""


FOLDS: Folds = {
    DaemonStarted: _daemon_started,
    QualityWished: _wished,
    QualityRequested: _requested,
    QualityMeasured: _measured,
    QualityFailed: _failed,
    QualityAlarmed: _alarmed,
    QualitySettled: _settled,
    QualityTold: _told,
    RollbackRefused: _refused,
    RollbackCompleted: _rolled_back,
}
