"""How facts change what the judge is asked, and how far it is trusted."""

from apollod.core.daemon.events import DaemonStarted
from apollod.core.dreams.events import DreamJudged, DreamTested
from apollod.core.judging.agreement import WINDOW
from apollod.core.judging.events import JudgeConfigured, VerdictFailed, VerdictGiven, VerdictRequested
from apollod.core.judging.state import Asked, Judge, JudgingState
from apollod.core.judging.votes import JUDGE
from apollod.core.kernel.folding import Folds
from apollod.core.review.events import ExampleApproved, ExampleDeclined, ExampleEdited, ExampleExpired, ExampleHeld
from apollod.core.schedules import SECOND_NS
from apollod.core.state import State
from apollod.core.training.events import StepStarted, all_examples


def _daemon_started(own: JudgingState, state: State, e: DaemonStarted, at_ns: int) -> None:
    own.ready = False


def _configured(own: JudgingState, state: State, e: JudgeConfigured, at_ns: int) -> None:
    judge, cases = Judge(e.model, e.prompt_hash), {one.id: one.expected for one in e.cases}
    if judge != own.judge:
        own.judge, own.due, own.good, own.bad, own.said = judge, dict.fromkeys(cases), [], [], {}
    else:
        own.due = dict.fromkeys(id_ for id_ in cases if id_ in own.due or id_ not in own.cases)
    own.cases, own.served, own.ready = cases, e.served, True
    own.failures, own.retry_ns, own.retry_s, own.error = 0, 0, 0.0, ""


def _requested(own: JudgingState, state: State, e: VerdictRequested, at_ns: int) -> None:
    own.open[e.example or e.case] = Asked(e.attempt, bool(e.case))
    if e.case:
        if e.case not in own.due and e.attempt == 1:
            own.turn += 1
        own.since_case = own.since_case_of_dreams = 0


def _given(own: JudgingState, state: State, e: VerdictGiven, at_ns: int) -> None:
    subject = e.example or e.case
    own.open.pop(subject, None)
    own.attempts.pop(subject, None)
    own.failures, own.retry_ns, own.retry_s, own.error = 0, 0, 0.0, ""
    mine = Judge(e.model, e.prompt_hash) == own.judge
    if e.case:
        own.due.pop(e.case, None)
        if mine:
            _count(own, e.expected, e.verdict == e.expected)
    elif e.example:
        own.verdicts += 1
        own.since_case += 1
        if mine and e.verdict != "unsure":
            own.said[e.example] = e.verdict


def _failed(own: JudgingState, state: State, e: VerdictFailed, at_ns: int) -> None:
    subject = e.example or e.case
    asked = own.open.pop(subject, None)
    if e.gives_up or (e.example and e.example not in own.waiting):
        own.attempts.pop(subject, None)
    else:
        own.attempts[subject] = e.attempt
    own.error = e.reason
    if e.cause == "endpoint":
        own.failures += 1
        own.retry_ns, own.retry_s = at_ns + int(e.retry_s * SECOND_NS), e.retry_s
    elif e.cause != "restart":
        own.failures, own.retry_ns, own.retry_s = 0, 0, 0.0
    if e.case and e.gives_up and asked is not None:
        own.due.pop(e.case, None)
        if e.cause == "nonsense" and e.case in own.cases:
            _count(own, own.cases[e.case], False)


def _dreamt(own: JudgingState, state: State, e: DreamJudged | DreamTested, at_ns: int) -> None:
    if e.by == JUDGE:
        own.since_case_of_dreams += 1


def _count(own: JudgingState, expected: str, hit: bool) -> None:
    kept = own.good if expected == "good" else own.bad
    kept.append(hit)
    if len(kept) > WINDOW:
        del kept[0]


def _held(own: JudgingState, state: State, e: ExampleHeld, at_ns: int) -> None:
    if e.waits_for == "judge":
        own.waiting[e.example] = None
        if e.by == "judge":
            own.written[e.example] = None
    else:
        _leave(own, e.example)


def _approved(own: JudgingState, state: State, e: ExampleApproved, at_ns: int) -> None:
    _decided(own, e.example, e.by, "good")


def _declined(own: JudgingState, state: State, e: ExampleDeclined | ExampleEdited, at_ns: int) -> None:
    _decided(own, e.example, e.by, "bad")


def _decided(own: JudgingState, example: str, by: str, found: str) -> None:
    """What a person decides shows whether the judge was right, the first time."""
    _leave(own, example)
    if by != "judge" and (said := own.said.pop(example, None)) is not None:
        _count(own, found, said == found)


def _expired(own: JudgingState, state: State, e: ExampleExpired, at_ns: int) -> None:
    for example in e.examples:
        _leave(own, example)
        own.said.pop(example, None)


def _step_started(own: JudgingState, state: State, e: StepStarted, at_ns: int) -> None:
    """No person can decide about what is learned."""
    if own.said:
        for example in all_examples(e):
            own.said.pop(example, None)


def _leave(own: JudgingState, example: str) -> None:
    own.waiting.pop(example, None)
    own.written.pop(example, None)
    own.attempts.pop(example, None)


FOLDS: Folds = {
    DaemonStarted: _daemon_started,
    JudgeConfigured: _configured,
    VerdictRequested: _requested,
    VerdictGiven: _given,
    VerdictFailed: _failed,
    DreamJudged: _dreamt,
    DreamTested: _dreamt,
    ExampleHeld: _held,
    ExampleApproved: _approved,
    ExampleDeclined: _declined,
    ExampleEdited: _declined,
    ExampleExpired: _expired,
    StepStarted: _step_started,
}
