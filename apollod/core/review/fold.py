"""Folds decisions about examples into the state."""

from itertools import islice

from apollod.core.daemon.events import JournalCarried
from apollod.core.feedback.events import FeedbackGiven
from apollod.core.forgetting.events import ForgetRequested
from apollod.core.intake.events import ExampleRequeued, ExampleWithdrawn
from apollod.core.judging.votes import JUDGE
from apollod.core.kernel.folding import Folds
from apollod.core.review.events import (
    BY_EVIDENCE,
    ExampleApproved,
    ExampleDeclined,
    ExampleEdited,
    ExampleExpired,
    ExampleHeld,
)
from apollod.core.review.state import Dismissed, Held, ReviewState
from apollod.core.state import State
from apollod.core.training.events import StepFailed


def _held(own: ReviewState, state: State, e: ExampleHeld, at_ns: int) -> None:
    own.recall(e.example)
    own.approved.pop(e.example, None)
    own.held.pop(e.example, None)  # an example held again is the newest
    own.held[e.example] = Held(e.tier, e.reason, e.waits_for, at_ns)


def _approved(own: ReviewState, state: State, e: ExampleApproved, at_ns: int) -> None:
    own.held.pop(e.example, None)
    own.recall(e.example)
    if e.by not in (JUDGE, BY_EVIDENCE):
        own.approved[e.example] = None


def _rated(own: ReviewState, state: State, e: FeedbackGiven, at_ns: int) -> None:
    if e.example:
        own.approved[e.example] = None


def _requeued(own: ReviewState, state: State, e: ExampleRequeued, at_ns: int) -> None:
    own.approved[e.example] = None


def _taken_back(own: ReviewState, state: State, e: ExampleWithdrawn | ForgetRequested, at_ns: int) -> None:
    for example in e.examples:
        own.approved.pop(example, None)


def _carried(own: ReviewState, state: State, e: JournalCarried, at_ns: int) -> None:
    own.approved |= dict.fromkeys(e.approved)


def _declined(own: ReviewState, state: State, e: ExampleDeclined, at_ns: int) -> None:
    own.dismiss(e.example, Dismissed("declined", e.tier, e.by))


def _edited(own: ReviewState, state: State, e: ExampleEdited, at_ns: int) -> None:
    own.dismiss(e.example, Dismissed("edited", e.tier, e.by))


def _expired(own: ReviewState, state: State, e: ExampleExpired, at_ns: int) -> None:
    waiting = {one.example: one.tier for one in islice(state.intake.bulk.waiting, len(e.examples) if e.waiting else 0)}
    for example in e.examples:
        tier = waiting[example] if e.waiting else own.held[example].tier
        own.dismiss(example, Dismissed("expired", tier))


def _step_failed(own: ReviewState, state: State, e: StepFailed, at_ns: int) -> None:
    """Hold the examples of a failed step for a person."""
    if not e.apart:
        for one in state.intake.taken:
            own.held[one.example] = Held(one.tier, f"its step could not be run: {e.reason}", "person", at_ns)


FOLDS: Folds = {
    ExampleHeld: _held,
    ExampleApproved: _approved,
    ExampleDeclined: _declined,
    ExampleEdited: _edited,
    ExampleExpired: _expired,
    ExampleRequeued: _requeued,
    ExampleWithdrawn: _taken_back,
    FeedbackGiven: _rated,
    ForgetRequested: _taken_back,
    JournalCarried: _carried,
    StepFailed: _step_failed,
}
"""Folded before `intake`, which clears the examples of a failed step and expired ones."""
