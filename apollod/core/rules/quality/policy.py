"""Decides when the model is measured, and reacts when it is worse.

A look that is due comes before the next step, so that weights do not change meanwhile. Law: an alarm stops steps at
once, and they go on only after the last good weights are back and were measured again, or a person resumes; after three
alarms in a day, only after a person resumes.
"""

from collections.abc import Mapping

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.facts.dreams.held_out_rounds import contrast_cases
from apollod.core.facts.quality.looking import (
    LESSONS,
    Figures,
    LessonCase,
    compared_with,
    counted,
    due,
    fallen_together,
    fell,
    in_turn,
    is_asked,
    is_rate,
    looked,
    quiet_s,
    share,
    silent_groups,
    speaking,
    worse,
)
from apollod.core.facts.quality.sequential import Baseline, alarms, drops, interval
from apollod.core.facts.quality.state import Incident, QualityState
from apollod.core.kernel.composing import composed
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Handlers
from apollod.core.kernel.reasons import one_line
from apollod.core.rules.lessons.standing import not_these
from apollod.core.rules.quality import incidents
from apollod.core.schedules import RETRY_MAX_S, SECOND_NS, backoff_s, is_due
from apollod.core.settings import QualitySettings
from apollod.core.state import State

TELL_ATTEMPTS = 8
"""attempts to deliver a message, within about two minutes besides their own duration"""
BASELINE_ATTEMPTS = 6
"""consecutive failures of an engine, over half a minute, after which steps go on without a baseline: a model does not
get worse before it learns"""


def repeat(state: State, now_ns: int) -> list[fx.Effect]:
    """The message that was not delivered yet, and the open replay."""
    return [] if state.daemon.stopping else [*tell(state, now_ns), *incidents.replay(state, now_ns)]


def advance(state: State, now_ns: int) -> Outcome:
    """The next action about an incident, or the look that is due."""
    settings, own = state.daemon.settings, state.quality
    if settings is None or state.daemon.stopping:
        return nothing()
    if own.incident is not None and not own.unmeasured:
        return incidents.advance(state, own.incident)
    if blocked(Activity.MEASUREMENT, state) or not own.retry.is_due(now_ns):
        return nothing()
    if own.open is not None:
        open_, baseline = own.open, own.open.why == "baseline"
        references = "" if baseline else own.references
        # a baseline has the patterns of its first run, and looks have those of the baseline
        contrasts = contrast_cases(state.dreams) if baseline and not own.runs else own.contrasts
        lessons = tuple(_case(state, one) for one in open_.lessons if is_asked(state.lessons, one))
        measure = fx.MeasureQuality(
            open_.number, open_.share, baseline, references, contrasts, lessons, open_.without,
            known="" if baseline else own.probes, tries=baseline and not own.runs,
        )  # fmt: skip
        return Outcome([], [measure])
    if (why := due(own, settings.quality, _quiet(state, settings.quality, now_ns))) is None:
        return nothing()
    asked = share(own, settings.quality, why)
    requested = ev.QualityRequested(
        number=own.number + 1, why=why, step=state.training.version, share=asked,
        lessons=() if why == "baseline" else in_turn(state.lessons, state.training.version, asked),
        without=tuple(own.silent) if why != "baseline" else _silent(own, settings.quality),
    )  # fmt: skip
    return Outcome([requested], [])  # `advance` is asked again


def _silent(own: QualityState, settings: QualitySettings) -> tuple[str, ...]:
    """Groups of probes that the second run of a baseline does not ask, since too few of their items passed in the first
    one."""
    return silent_groups(own.runs[0], settings) if own.runs else ()


def _case(state: State, lesson: str) -> LessonCase:
    one = state.lessons.lessons[lesson]
    assert one.worded is not None
    return LessonCase(lesson, one.worded.held_out, not_these(one))


def _quiet(state: State, settings: QualitySettings, now_ns: int) -> bool:
    """True if nothing was learned lately and nothing waits: a look delays nothing."""
    if state.due or state.dreams.open is not None:
        return False
    wait_s = quiet_s(state.quality, settings)
    return is_due(now_ns, state.training.last_step_ns + int(wait_s * SECOND_NS), wait_s)


def tell(state: State, now_ns: int) -> list[fx.Effect]:
    """Send the oldest undelivered message, until its result is recorded."""
    settings, own = state.daemon.settings, state.quality.telling
    if settings is None or not settings.on_alarm or not own.waiting or not own.retry.is_due(now_ns):
        return []
    message = own.waiting[0]
    return [fx.TellAlarm(message.incident, message.about, message)]


def on_told(state: State, input_: inp.AlarmTold, now_ns: int) -> Outcome:
    """Record the result only: the guard does not depend on delivery."""
    own = state.quality.telling
    if not own.waiting or (own.waiting[0].incident, own.waiting[0].about) != (input_.incident, input_.about):
        return nothing()
    attempt = own.retry.failures + 1
    gives_up = bool(input_.error) and attempt >= TELL_ATTEMPTS
    retry_s = backoff_s(attempt, RETRY_MAX_S) if input_.error and not gives_up else 0.0
    told = ev.QualityTold(
        incident=input_.incident, about=input_.about, ok=not input_.error, reason=one_line(input_.error),
        attempt=attempt, gives_up=gives_up, retry_s=retry_s,
    )  # fmt: skip
    return Outcome([told], [])


def _on_started(state: State, input_: inp.Started, now_ns: int) -> Outcome:
    if not input_.references_problem:
        return nothing()
    lost = ev.QualityReferencesLost(digest=state.quality.references, reason=input_.references_problem)
    return Outcome([lost], [])


def _on_answered(state: State, input_: inp.ProbesAnswered, now_ns: int) -> Outcome:
    """Record a look, if the weights did not change meanwhile; else it is made again."""
    own, settings = state.quality, state.daemon.settings
    open_ = own.open
    if open_ is None or open_.number != input_.number or settings is None:
        return nothing()
    if moved := _moved(state, open_.step, input_):
        return Outcome([_failed(own, input_.number, moved)], [])
    if open_.why != "baseline" and input_.probes != own.probes:
        again = "the probes are others than those of the baseline: `apollod ctl quality baseline` measures these"
        return Outcome([_failed(own, input_.number, again)], [])
    figures = _of_known(state, input_.figures)
    after = {} if open_.why == "baseline" else looked(own, settings.quality, figures)
    measured = composed(
        ev.QualityMeasured, input_, why=open_.why, step=open_.step, figures=figures, after=after,
        share=input_.share or open_.share, answers=_answers_of_note(own, open_.why == "baseline", input_),
    )  # fmt: skip
    if open_.why == "restored" and (incident := own.unmeasured):
        return Outcome([measured, *_further_back(state, incident, speaking(after))], [])
    whole = measured.share >= 1.0
    names = alarms(after, whole) or (fallen_together(own, settings.quality, after, figures) if whole else ())
    if not names:
        return Outcome([measured], [])
    before = compared_with(own, figures)
    told = {name: _drop(before[name], name, figures.get(name, {}), after[name].scale) for name in names}
    to = max(own.good, _first_step(state)) if own.good >= 0 else open_.step
    alarmed = ev.QualityAlarmed(
        incident=own.incidents + 1, step=open_.step, to=to, metrics=names, drops=told,
        fell={name: fell(before[name], name, figures.get(name, {})) for name in names if name != LESSONS},
    )  # fmt: skip
    return Outcome([measured, alarmed], [])


def _answers_of_note(own: QualityState, baseline: bool, input_: inp.ProbesAnswered) -> dict[str, str]:
    """Answers that pass at the baseline; later those that fail and passed then."""
    rates = {name: found for name, found in input_.figures.items() if is_rate(name)}
    told = {id_ for found in rates.values() for id_, value in found.items() if value is not None and value > 0.5}
    if not baseline:
        before = (own.baseline[name].figures for name in rates.keys() & own.baseline.keys())
        told = {id_ for found in before for id_, value in found.items() if value > 0.5} - told
    return {id_: answer for id_, answer in sorted(input_.answers.items()) if id_ in told}


def _first_step(state: State) -> int:
    """The earliest step that can be gone back to: the one at which the journal continues an archive, or 0."""
    return state.daemon.continued.step if state.daemon.continued else 0


def _further_back(state: State, incident: Incident, metrics: tuple[str, ...]) -> list[ev.Event]:
    """Go back to the good look before, if there is one and `metrics` show the restored weights to be worse."""
    to = state.quality.good_before(incident.to)
    if not metrics or to < _first_step(state):
        return []
    return [ev.QualityNotGood(incident=incident.number, step=incident.to, to=to, metrics=metrics)]


def _moved(state: State, step: int, input_: inp.ProbesAnswered) -> str:
    """Reason why a look saw other weights than the present ones; empty: it saw these."""
    if input_.first != input_.last or state.training.version != step or state.training.running is not None:
        return "the weights changed while the probes were asked"
    if (wanted := state.rollback.wanted) is not None:
        return f"the weights of step {wanted.to} are wanted back"
    return f"training halted while the probes were asked: {state.daemon.halted}" if state.daemon.halted else ""


def _of_known(state: State, figures: Figures) -> dict[str, dict[str, float | None]]:
    others = {name: dict(items) for name, items in figures.items() if name != LESSONS}
    return others | counted(state.lessons, figures.get(LESSONS, {}), state.training.version)


def _drop(before: Baseline, name: str, figures: Mapping[str, float | None], scale: float) -> ev.Drop:
    found = drops(before, figures, worse(name), scale)
    low, high = interval(found, scale)
    return ev.Drop(sum(found) / len(found) if found else 0.0, low, high)


def _on_failed(state: State, input_: inp.ProbesFailed, now_ns: int) -> Outcome:
    own = state.quality
    if own.open is None or own.open.number != input_.number:
        return nothing()
    unmeasured = own.open.why == "baseline" and own.retry.failures + 1 >= BASELINE_ATTEMPTS
    if input_.cause == "unable" or (input_.cause == "engine" and unmeasured):
        return Outcome(
            [
                ev.QualityFailed(
                    number=input_.number, reason=f"{input_.reason}; steps go on without the guard", gives_up=True
                )
            ],
            [],
        )
    return Outcome([_failed(own, input_.number, input_.reason)], [])


def _failed(own: QualityState, number: int, reason: str) -> ev.QualityFailed:
    return ev.QualityFailed(number=number, reason=reason, retry_s=backoff_s(own.retry.failures + 1, RETRY_MAX_S))


def _on_wanted(state: State, input_: inp.QualityWanted, now_ns: int) -> Outcome:
    return Outcome([ev.QualityWished(by=input_.by, baseline=input_.baseline)], [])


HANDLERS: Handlers = {
    inp.Started: _on_started,
    inp.QualityWanted: _on_wanted,
    inp.ProbesAnswered: _on_answered,
    inp.ProbesFailed: _on_failed,
    **incidents.HANDLERS,
    inp.AlarmTold: on_told,
}
