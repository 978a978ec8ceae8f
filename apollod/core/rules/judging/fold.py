"""Folds verdicts and the judge's trial into the state."""

from collections.abc import Iterable

from apollod.core import events as ev
from apollod.core.facts.judging.events import JUDGE
from apollod.core.facts.judging.state import (
    CHANGED,
    MADE_MAX,
    SAME,
    SURE,
    WINDOW,
    Asked,
    Judge,
    JudgingState,
    Suspicion,
    seen,
)
from apollod.core.facts.review import BY_EVIDENCE
from apollod.core.kernel.policy import Folds
from apollod.core.schedules import NO_FAILURE
from apollod.core.state import State


def _daemon_started(own: JudgingState, state: State, e: ev.DaemonStarted, at_ns: int) -> None:
    own.ready = False


def _configured(own: JudgingState, state: State, e: ev.JudgeConfigured, at_ns: int) -> None:
    judge = Judge(e.model, e.prompt_hash, e.endpoint, e.sampling)
    cases = {one.id: one.expected for one in e.cases}
    if judge != own.judge:
        own.judge, own.said, own.approved = judge, {}, {}
        _begin_anew(own, cases)
    else:
        own.due = dict.fromkeys(id_ for id_ in cases if id_ in own.due or id_ not in own.cases)
    own.cases, own.served, own.ready = cases, e.served, True
    own.retry, own.error = NO_FAILURE, ""


def _distrusted(own: JudgingState, state: State, e: ev.JudgeDistrusted, at_ns: int) -> None:
    own.approved = {}
    _begin_anew(own, own.cases)


def _begin_anew(own: JudgingState, cases: Iterable[str]) -> None:
    """Reset the record of a distrusted judge: it has to pass all planted cases again."""
    own.due, own.good, own.bad, own.suspicions = dict.fromkeys(cases), [], [], {}


def _requested(own: JudgingState, state: State, e: ev.VerdictRequested, at_ns: int) -> None:
    own.open[e.example or e.case] = Asked(e.attempt, bool(e.case))
    if e.case:
        sort = own.expected(e.case)
        if e.case not in own.due and e.attempt == 1:
            own.turns[sort] = own.turns.get(sort, 0) + 1
        own.since[sort] = 0


def _given(own: JudgingState, state: State, e: ev.VerdictGiven, at_ns: int) -> None:
    subject = e.example or e.case
    own.open.pop(subject, None)
    own.attempts.pop(subject, None)
    own.retry, own.error = NO_FAILURE, ""
    mine = (e.model, e.prompt_hash) == (own.judge.model, own.judge.prompt_hash)
    if e.case:
        own.due.pop(e.case, None)
        if mine:
            _count(own, state, e.expected, e.verdict == e.expected)
            if e.expected == "bad" and own.suspicions["bad"].e_value <= SURE:
                own.approved.clear()
    elif e.example:
        own.verdicts += 1
        _said(own, e.verdict)
        if mine and e.verdict != "unsure":
            own.said[e.example] = e.verdict
        if e.into:
            own.better[e.example] = e.into


def _said(own: JudgingState, verdict: str) -> None:
    """Count one more verdict that a case of the other sort could show to be wrong."""
    if verdict != "unsure":
        sort = "bad" if verdict == "good" else "good"
        own.since[sort] = own.since.get(sort, 0) + 1


def _failed(own: JudgingState, state: State, e: ev.VerdictFailed, at_ns: int) -> None:
    subject = e.example or e.case
    asked = own.open.pop(subject, None)
    if e.gives_up or (e.example and e.example not in own.waiting) or (e.case and not own.knows(e.case)):
        own.attempts.pop(subject, None)
    else:
        own.attempts[subject] = e.attempt
    own.error = e.reason
    if e.cause == "endpoint":
        own.retry = own.retry.after(at_ns, e.retry_s)
    elif e.cause != "restart":
        own.retry = NO_FAILURE
    if e.case and e.gives_up and asked is not None:
        own.due.pop(e.case, None)
        if e.cause == "nonsense" and (expected := own.expected(e.case)):
            _count(own, state, expected, False)
        elif e.case.startswith((SAME, CHANGED)):  # a case cannot be made of it
            _unmake(own, e.case.partition(":")[2])


def _dreamt(own: JudgingState, state: State, e: ev.DreamJudged | ev.DreamTested, at_ns: int) -> None:
    if e.by == JUDGE:
        _said(own, e.verdict if isinstance(e, ev.DreamJudged) else "good" if e.passed else "bad")


def _count(own: JudgingState, state: State, expected: str, hit: bool) -> None:
    kept = own.good if expected == "good" else own.bad
    kept.append(hit)
    if len(kept) > WINDOW:
        del kept[0]
    settings = state.daemon.settings
    if settings is not None:
        before = own.suspicions.get(expected, Suspicion())
        own.suspicions[expected] = seen(before, hit, settings.judge.trust_min)


def _held(own: JudgingState, state: State, e: ev.ExampleHeld, at_ns: int) -> None:
    _unmake(own, e.example)
    if e.waits_for == "judge":
        own.waiting[e.example] = None
        if e.by == "judge":
            own.written[e.example] = None
    else:
        _leave(own, e.example)


def _approved(own: JudgingState, state: State, e: ev.ExampleApproved, at_ns: int) -> None:
    _decided(own, state, e.example, e.by, "good")
    if e.by == JUDGE:
        own.approved[e.example] = None
    elif e.by != BY_EVIDENCE:
        own.reviewed.pop(e.example, None)
        own.reviewed[e.example] = None
        if len(own.reviewed) > MADE_MAX:
            _unmake(own, next(iter(own.reviewed)))


def _declined(own: JudgingState, state: State, e: ev.ExampleDeclined | ev.ExampleEdited, at_ns: int) -> None:
    _decided(own, state, e.example, e.by, "bad")
    _unmake(own, e.example)


def _taken_back(own: JudgingState, state: State, e: ev.ExampleWithdrawn | ev.ForgetRequested, at_ns: int) -> None:
    for example in e.examples:
        _unmake(own, example)


def _unmake(own: JudgingState, example: str) -> None:
    """Make no more cases of this example."""
    own.reviewed.pop(example, None)
    for case in (SAME + example, CHANGED + example):
        own.attempts.pop(case, None)


def _decided(own: JudgingState, state: State, example: str, by: str, found: str) -> None:
    """Compare a person's first decision about an example with the judge's verdict."""
    _leave(own, example)
    if by not in (JUDGE, BY_EVIDENCE):
        own.better.pop(example, None)
        own.approved.pop(example, None)
        if (said := own.said.pop(example, None)) is not None:
            _count(own, state, found, said == found)


def _expired(own: JudgingState, state: State, e: ev.ExampleExpired, at_ns: int) -> None:
    for example in e.examples:
        _leave(own, example)
        own.said.pop(example, None)


def _step_started(own: JudgingState, state: State, e: ev.StepStarted, at_ns: int) -> None:
    """Forget verdicts on learned examples: a person can no longer decide about them."""
    if own.said:
        for example in ev.all_examples(e):
            own.said.pop(example, None)


def _leave(own: JudgingState, example: str) -> None:
    own.waiting.pop(example, None)
    own.written.pop(example, None)
    own.attempts.pop(example, None)


FOLDS: Folds = {
    ev.DaemonStarted: _daemon_started,
    ev.JudgeConfigured: _configured,
    ev.JudgeDistrusted: _distrusted,
    ev.VerdictRequested: _requested,
    ev.VerdictGiven: _given,
    ev.VerdictFailed: _failed,
    ev.DreamJudged: _dreamt,
    ev.DreamTested: _dreamt,
    ev.ExampleHeld: _held,
    ev.ExampleApproved: _approved,
    ev.ExampleDeclined: _declined,
    ev.ExampleEdited: _declined,
    ev.ExampleExpired: _expired,
    ev.ExampleWithdrawn: _taken_back,
    ev.ForgetRequested: _taken_back,
    ev.StepStarted: _step_started,
}
