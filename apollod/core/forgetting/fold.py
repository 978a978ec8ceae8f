"""Fold events into the open requests to forget and the intent under way."""

from apollod.core.feedback.events import FeedbackGiven
from apollod.core.forgetting.events import ForgetCompleted, ForgetRefused, ForgetRequested, ForgetStarted
from apollod.core.forgetting.state import ForgettingState, UnderWay, Wish
from apollod.core.kernel.folding import Folds
from apollod.core.rollback.events import RollbackCompleted, RollbackRefused
from apollod.core.state import State
from apollod.core.training.events import StepStarted


def _requested(own: ForgettingState, state: State, e: ForgetRequested, at_ns: int) -> None:
    for example in e.examples:
        own.refused.pop(example, None)
        own.wanted[example] = Wish(e.by, e.reason)


def _started(own: ForgettingState, state: State, e: ForgetStarted, at_ns: int) -> None:
    wishes = {example: own.wanted.pop(example, Wish("", "")) for example in e.examples}
    own.number, own.under_way = e.number, UnderWay(e.number, wishes, e.steps, e.to, e.again, at_ns)


def _refused(own: ForgettingState, state: State, e: ForgetRefused, at_ns: int) -> None:
    under_way = own.under_way
    if under_way is not None and under_way.phase == "stuck":
        own.wanted, own.under_way = under_way.wishes | own.wanted, None
    for example in e.examples:
        own.wanted.pop(example, None)
        own.refused[example] = e.reason


def _completed(own: ForgettingState, state: State, e: ForgetCompleted, at_ns: int) -> None:
    for example in e.examples:
        own.wanted.pop(example, None)
    if e.number:
        own.under_way = None
        own.forgotten += len(e.examples)


def _rated(own: ForgettingState, state: State, e: FeedbackGiven, at_ns: int) -> None:
    """A request to learn an example again cancels an open request to forget it."""
    own.wanted.pop(e.example, None)
    own.refused.pop(e.example, None)


def _rollback_refused(own: ForgettingState, state: State, e: RollbackRefused, at_ns: int) -> None:
    one = own.under_way
    if one is not None and one.phase == "back" and one.to == e.to:
        one.phase, one.reason = "stuck", e.reason


def _rolled_back(own: ForgettingState, state: State, e: RollbackCompleted, at_ns: int) -> None:
    one = own.under_way
    if one is not None and one.phase == "back" and one.to == e.to:
        one.phase = "again"


def _step_started(own: ForgettingState, state: State, e: StepStarted, at_ns: int) -> None:
    one = own.under_way
    if one is not None and e.again_of:
        one.again = tuple(step for step in one.again if step.number > e.again_of)
        one.repeated += 1


FOLDS: Folds = {
    ForgetRequested: _requested,
    ForgetStarted: _started,
    ForgetRefused: _refused,
    ForgetCompleted: _completed,
    FeedbackGiven: _rated,
    RollbackRefused: _rollback_refused,
    RollbackCompleted: _rolled_back,
    StepStarted: _step_started,
}
