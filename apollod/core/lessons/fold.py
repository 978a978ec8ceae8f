"""Fold events into the lessons."""

from apollod.core.kernel.event import Event
from apollod.core.kernel.folding import Folds
from apollod.core.lessons import events as ev
from apollod.core.lessons.state import LessonsState
from apollod.core.state import State


def _later(own: LessonsState, state: State, e: Event, at_ns: int) -> None:
    pass


FOLDS: Folds = dict.fromkeys(
    (
        ev.LessonGiven, ev.LessonBegun, ev.LessonWorded, ev.LessonAsked, ev.LessonPrepared, ev.LessonPractised,
        ev.LessonKnown, ev.LessonFading, ev.LessonRequested, ev.LessonReplaced, ev.LessonGivenUp, ev.LessonFailed,
    ),
    _later,
)  # fmt: skip
