"""Which lesson answers a question, and how one leaves its place to another. Pure."""

from apollod.core.intake.events import ExampleWithdrawn
from apollod.core.kernel.event import Event
from apollod.core.lessons.events import LessonReplaced
from apollod.core.lessons.state import Lesson, LessonsState
from apollod.core.state import State


def answer_of(lesson: Lesson) -> str:
    """The short answer; empty: it is a statement that was not worded yet."""
    return lesson.worded.answer if lesson.worded is not None else lesson.given.answer


def alike(one: str, other: str) -> bool:
    """True if two answers differ in case, spaces, commas and what stands around them only: 7,341 and 7341."""
    return _plain(one) == _plain(other)


def _plain(text: str) -> str:
    return " ".join(text.casefold().replace(",", "").split()).strip(" .!?\"'")


def not_these(lesson: Lesson) -> tuple[str, ...]:
    """Answers that are wrong now: those of the lessons that it replaced."""
    return tuple(one for one in lesson.not_these if one and not alike(one, answer_of(lesson)))


def standing(own: LessonsState, key: str) -> Lesson | None:
    """The lesson that answers the question with this key."""
    return own.lessons.get(own.by_key.get(key, ""))


def replaced(state: State, lesson: Lesson, by: str) -> list[Event]:
    """Events by which a lesson is replaced by the lesson `by`."""
    return [LessonReplaced(lesson=lesson.id, by=by), *dropped(state, lesson, by, f"lesson {by} has another answer")]


def dropped(state: State, lesson: Lesson, by: str, reason: str) -> list[Event]:
    """The event that takes its example out of the queue, if it waits there."""
    course = state.lessons.open
    if course is None or course.lesson != lesson.id or not waits(state, course.example):
        return []
    return [ExampleWithdrawn(examples=(course.example,), by=by, reason=reason)]


def waits(state: State, example: str) -> bool:
    """True if the example is in the queue; False if a step is learning it."""
    return bool(example) and any(one.example == example for one in state.intake.direct.waiting)
