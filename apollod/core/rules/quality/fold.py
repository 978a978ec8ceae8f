"""Folds events into the state of the quality guard."""

from msgspec.structs import replace

from apollod.core import events as ev
from apollod.core.facts.quality.looking import baselines, doubt, is_rate, known, speaking
from apollod.core.facts.quality.sequential import RUNS_MIN, renewed
from apollod.core.facts.quality.state import (
    GUARD,
    WINDOW_MAX,
    Asked,
    Incident,
    Measuring,
    QualityState,
    Totals,
    with_alarm,
)
from apollod.core.facts.training import Learned
from apollod.core.kernel.policy import Folds
from apollod.core.schedules import NO_FAILURE
from apollod.core.state import State

NOTHING_MEASURED = "no probe was answered or scored, and steps go on without the guard; the engine's log says why"


def _daemon_started(own: QualityState, state: State, e: ev.DaemonStarted, at_ns: int) -> None:
    own.retry, own.error = NO_FAILURE, ""
    own.references_lost, own.unable = "", False
    if own.incident is not None:
        own.incident.ranking.open = False
    own.telling.begun(e.settings.on_alarm)


def _references_lost(own: QualityState, state: State, e: ev.QualityReferencesLost, at_ns: int) -> None:
    own.references_lost = e.reason


def _wished(own: QualityState, state: State, e: ev.QualityWished, at_ns: int) -> None:
    if own.asked != "baseline":
        own.asked = "baseline" if e.baseline else "checkpoint" if e.checkpoint and not own.asked else "run"


def _pattern_settled(own: QualityState, state: State, e: ev.PatternSettled, at_ns: int) -> None:
    """Ask all probes after practices of a behaviour, to see that nothing else moved."""
    guarded = state.daemon.settings is not None and state.daemon.settings.quality.every_steps > 0
    if guarded and own.baseline and e.practices and not own.asked:
        own.asked = "settled"


def _requested(own: QualityState, state: State, e: ev.QualityRequested, at_ns: int) -> None:
    own.number, own.open = e.number, Measuring(e.number, e.why, e.step, e.share, e.lessons, e.without)


def _measured(own: QualityState, state: State, e: ev.QualityMeasured, at_ns: int) -> None:
    own.open, own.retry, own.error, own.unable = None, NO_FAILURE, "", False
    own.full_s, own.last_s = e.seconds / e.share, e.seconds
    if e.why != "baseline":
        own.last = e.figures
        own.metrics, own.looked = dict(e.after), e.step
        own.doubt, good = doubt(own.metrics, e.share, own.cleared)
        if e.share >= 1.0:
            own.cleared, own.busy_since_whole_s = {name: one.e_value for name, one in own.metrics.items()}, 0.0
        if good:
            own.found_good(e.step)
        if e.why == "restored" and (incident := own.unmeasured):
            incident.restored = "bad" if speaking(own.metrics) else "good"
        _look_over(own)
        own.asked = "baseline" if own.asked == "baseline" else ""  # this look is not the requested baseline
        return
    if (own.probes, own.at) != (e.probes, e.step):
        own.runs = []  # of other probes, or of other weights
    own.probes, own.at, own.references, own.contrasts = e.probes, e.step, e.references, e.contrasts
    own.references_lost = ""
    own.runs.append(known(e.figures))
    if len(own.runs) >= RUNS_MIN:
        own.silent = _silent(own.runs[0], own.runs[-1])
        own.baseline, own.runs, own.asked = baselines(own.runs), [], ""
        if not own.baseline:
            own.unable, own.error = True, NOTHING_MEASURED
        own.metrics, own.last, own.looked, own.busy_since_whole_s = {}, {}, -1, 0.0
        own.good, own.goods, own.window_from = e.step, (e.step,), e.step
        _no_doubt(own)
        _look_over(own)
        own.window = []


def _silent(first: dict[str, dict[str, float]], last: dict[str, dict[str, float]]) -> dict[str, tuple[int, int]]:
    """Groups that the first run of a baseline asked and the last one left out, since too few items passed: (passed,
    count)."""
    return {
        name.removesuffix(".passed"): (sum(value > 0.5 for value in items.values()), len(items))
        for name, items in first.items()
        if is_rate(name) and name not in last
    }


def _no_doubt(own: QualityState) -> None:
    """Forget the doubt that looks at other weights raised."""
    own.doubt, own.cleared = False, {}


def _look_over(own: QualityState) -> None:
    own.since, own.busy_s, own.window_ended = 0, 0.0, False


def _failed(own: QualityState, state: State, e: ev.QualityFailed, at_ns: int) -> None:
    own.open, own.retry, own.error = None, own.retry.after(at_ns, e.retry_s), e.reason
    own.totals = replace(own.totals, failed=own.totals.failed + 1)
    if e.gives_up:
        own.unable, own.asked = True, ""
        if incident := own.unmeasured:
            incident.restored = "unknown"


def _alarmed(own: QualityState, state: State, e: ev.QualityAlarmed, at_ns: int) -> None:
    own.incidents, own.good = e.incident, e.to
    _no_doubt(own)
    own.incident = Incident(
        e.incident, e.step, e.to, e.metrics, "restored" if e.step == e.to else "alarmed", fell=e.fell,
        margins={name: _margin(own, state, name) for name in e.metrics if name in own.metrics},
        steps=tuple(own.since_good), whole=len(own.window) < WINDOW_MAX,
    )  # fmt: skip
    own.alarms_ns = with_alarm(own.alarms_ns, at_ns)
    own.telling.alarmed(e, at_ns, _is_told(state))


def _not_good(own: QualityState, state: State, e: ev.QualityNotGood, at_ns: int) -> None:
    """Go further back, and search the steps between as well."""
    own.good, own.goods = e.to, tuple(one for one in own.goods if one <= e.to)
    _no_doubt(own)
    if (incident := own.incident) is not None:
        before = [one for one in own.window if one.step > e.to]
        incident.to, incident.phase, incident.restored = e.to, "alarmed", ""
        incident.steps, incident.whole = (*before, *incident.steps), incident.whole and own.window_from <= e.to


def _margin(own: QualityState, state: State, name: str) -> float:
    """The margin of a figure that a replay measures: a loss, or for all other metrics the lost probability of
    answers."""
    settings = state.daemon.settings
    own_unit = is_rate(name) or name.endswith(".loss") or settings is None
    return own.metrics[name].margin if own_unit or settings is None else settings.quality.margin


def _search_begun(own: QualityState, state: State, e: ev.QualitySearchBegun, at_ns: int) -> None:
    if own.incident is not None:
        own.incident.phase, own.incident.window = "searching", e.window
        own.incident.replays_max, own.incident.culprits_max = e.replays_max, e.culprits_max


def _replay_begun(own: QualityState, state: State, e: ev.QualityReplayBegun, at_ns: int) -> None:
    if own.incident is not None:
        own.incident.replays.append(Asked(e.left_out, lr_scale=e.lr_scale))
        own.incident.retry = NO_FAILURE


def _replayed(own: QualityState, state: State, e: ev.QualityReplayed, at_ns: int) -> None:
    if own.incident is not None and (open_ := own.incident.open_replay) is not None:
        open_.drops = e.drops
    own.totals = replace(own.totals, replays=own.totals.replays + 1)


def _replay_failed(own: QualityState, state: State, e: ev.QualityReplayFailed, at_ns: int) -> None:
    if (incident := own.incident) is not None:
        incident.retry = incident.retry.after(at_ns, e.retry_s)
        incident.gave_up = e.reason if e.gives_up else ""


def _rank_begun(own: QualityState, state: State, e: ev.QualityRankBegun, at_ns: int) -> None:
    if own.incident is not None:
        own.incident.ranking.number, own.incident.ranking.open = e.number, True


def _ranked(own: QualityState, state: State, e: ev.QualityRanked, at_ns: int) -> None:
    if own.incident is not None:
        one = own.incident.ranking
        one.open, one.scores, one.unscored = False, e.scores, tuple(e.unscored)


def _rank_failed(own: QualityState, state: State, e: ev.QualityRankFailed, at_ns: int) -> None:
    if own.incident is not None:
        own.incident.ranking.open, own.incident.ranking.gave_up = False, e.reason


def _trainer_exited(own: QualityState, state: State, e: ev.TrainerExited, at_ns: int) -> None:
    """End the open ranking, so that the next trainer is asked."""
    if own.incident is not None and own.incident.ranking.open:
        own.incident.ranking.open = False
        own.incident.ranking.ended += not e.expected


def _named(own: QualityState, state: State, e: ev.QualityNamed, at_ns: int) -> None:
    if (incident := own.incident) is None:
        return
    incident.phase, incident.verdict, incident.culprits, incident.reason = "named", e.verdict, e.culprits, e.reason
    incident.lr_scale = e.lr_scale
    held = {*e.culprits, *e.suspects}
    left = [step.without(held) for step in incident.steps] if e.verdict != "not_searched" else []
    incident.again = tuple(replace(rest, lr=rest.lr * e.lr_scale) for rest in left if rest.examples)
    if e.verdict == "rate":
        own.telling.found_rate(e, at_ns, _is_told(state))


def _resumed(own: QualityState, state: State, e: ev.QualityResumed, at_ns: int) -> None:
    own.alarms_ns = ()
    if own.incident is not None:
        own.incident.resumed = True


def _settled(own: QualityState, state: State, e: ev.QualitySettled, at_ns: int) -> None:
    learned_again = own.incident is not None and bool(own.since)
    own.incident, own.asked = None, own.asked or ("run" if learned_again else "")  # is it good now?
    if e.by != GUARD:
        own.alarms_ns = ()
    own.metrics = {name: renewed(one) for name, one in own.metrics.items()}
    own.telling.settled(e, at_ns, _is_told(state))


def _told(own: QualityState, state: State, e: ev.QualityTold, at_ns: int) -> None:
    own.telling.told(e, at_ns)


def _is_told(state: State) -> bool:
    """True if alarms are delivered to `[quality] on_alarm`."""
    return state.daemon.settings is not None and state.daemon.settings.on_alarm


def _refused(own: QualityState, state: State, e: ev.RollbackRefused, at_ns: int) -> None:
    if own.incident is not None and own.incident.phase == "alarmed" and e.to == own.incident.to:
        own.incident.phase, own.incident.reason = "stuck", e.reason


def _rollback_started(own: QualityState, state: State, e: ev.RollbackStarted, at_ns: int) -> None:
    if own.incident is not None and own.incident.phase == "alarmed":  # else it is a person's, and settles the incident
        own.incident.undone += e.undone
        own.totals = replace(own.totals, taken_back=own.totals.taken_back + len(e.undone))


def _rolled_back(own: QualityState, state: State, e: ev.RollbackCompleted, at_ns: int) -> None:
    """Forget the evidence about other weights, also after a user's rollback."""
    own.metrics = {name: renewed(one) for name, one in own.metrics.items()}
    own.looked = e.to if own.baseline else -1
    _no_doubt(own)
    own.good = min(own.good, e.to)  # later steps are gone
    own.goods = tuple(one for one in own.goods if one <= e.to)
    own.window = [one for one in own.window if one.step <= e.to]
    own.since = min(own.since, len(own.since_good))
    if own.incident is not None and own.incident.phase == "alarmed":
        own.incident.phase = "restored"


def _step_started(own: QualityState, state: State, e: ev.StepStarted, at_ns: int) -> None:
    """Add the step to the window. Runs after the fold of `intake`, which knows the tier of its examples."""
    tier = state.intake.taken[0].tier if state.intake.taken else "bulk"
    if e.again_of and (incident := own.incident) is not None:
        incident.again = tuple(one for one in incident.again if one.number > e.again_of)
    _forget_until(own, own.good if len(own.window) >= WINDOW_MAX else max(own.good_before(own.good), 0))
    if own.baseline and len(own.window) < WINDOW_MAX:
        own.window.append(Learned.of(e, tier))


def _forget_until(own: QualityState, step: int) -> None:
    if own.window and own.window[0].step <= step:
        own.window, own.window_from = [one for one in own.window if one.step > step], step


def _step_completed(own: QualityState, state: State, e: ev.StepCompleted, at_ns: int) -> None:
    own.since += 1
    own.busy_s += e.seconds
    own.busy_since_whole_s += e.seconds
    if not e.applied:
        _forget(own, e.step)


def _step_failed(own: QualityState, state: State, e: ev.StepFailed, at_ns: int) -> None:
    _forget(own, e.step)


def _forget(own: QualityState, step: int) -> None:
    if own.window and own.window[-1].step == step:
        own.window.pop()


def _window_closed(own: QualityState, state: State, e: ev.WindowClosed, at_ns: int) -> None:
    own.window_ended = own.since > 0


def _carried(own: QualityState, state: State, e: ev.JournalCarried, at_ns: int) -> None:
    own.number, own.incidents, own.alarms_ns = e.measurements, e.alarms, e.alarms_ns
    own.totals = Totals(e.measurements_failed, e.steps_taken_back, e.search_replays)


FOLDS: Folds = {
    ev.JournalCarried: _carried,
    ev.DaemonStarted: _daemon_started,
    ev.QualityReferencesLost: _references_lost,
    ev.QualityWished: _wished,
    ev.PatternSettled: _pattern_settled,
    ev.QualityRequested: _requested,
    ev.QualityMeasured: _measured,
    ev.QualityFailed: _failed,
    ev.QualityAlarmed: _alarmed,
    ev.QualityNotGood: _not_good,
    ev.QualitySearchBegun: _search_begun,
    ev.QualityReplayBegun: _replay_begun,
    ev.QualityReplayed: _replayed,
    ev.QualityReplayFailed: _replay_failed,
    ev.QualityRankBegun: _rank_begun,
    ev.QualityRanked: _ranked,
    ev.QualityRankFailed: _rank_failed,
    ev.TrainerExited: _trainer_exited,
    ev.QualityNamed: _named,
    ev.QualityResumed: _resumed,
    ev.QualitySettled: _settled,
    ev.StepStarted: _step_started,
    ev.StepCompleted: _step_completed,
    ev.StepFailed: _step_failed,
    ev.WindowClosed: _window_closed,
    ev.QualityTold: _told,
    ev.RollbackRefused: _refused,
    ev.RollbackStarted: _rollback_started,
    ev.RollbackCompleted: _rolled_back,
}
