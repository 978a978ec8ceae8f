"""Folds ratings into counts."""

from apollod.core.daemon.events import JournalCarried
from apollod.core.feedback.events import FeedbackGiven
from apollod.core.feedback.state import FeedbackState
from apollod.core.kernel.folding import Folds
from apollod.core.state import State


def _given(own: FeedbackState, state: State, e: FeedbackGiven, at_ns: int) -> None:
    own.rated += not e.replaces


def _carried(own: FeedbackState, state: State, e: JournalCarried, at_ns: int) -> None:
    own.rated = e.rated


FOLDS: Folds = {FeedbackGiven: _given, JournalCarried: _carried}
"""Examples that follow from a rating have events of their own."""
