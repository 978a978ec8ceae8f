"""Finds the lesson that answers a question, replaces it by another one, and finds the practices of the round."""

from collections.abc import Iterable, Sequence

from apollod.core.facts.holding import NEIGHBOUR_NAME, Kin
from apollod.core.facts.intake.events import ExampleWithdrawn
from apollod.core.facts.intake.state import Waiting
from apollod.core.facts.lessons.events import ExampleReplaced, LessonReplaced, Worded, keys_of
from apollod.core.facts.lessons.inputs import Contradicted
from apollod.core.facts.lessons.stages import Stage
from apollod.core.facts.lessons.state import OUT, Lesson, LessonsState
from apollod.core.kernel.event import Event
from apollod.core.shared.places import places_of
from apollod.core.state import State


def answer_of(lesson: Lesson) -> str:
    """The short answer; empty: a statement that was not worded yet."""
    return lesson.worded.answer if lesson.worded is not None else lesson.given.answer


def alike(one: str, other: str) -> bool:
    """True if two answers differ only in case, spaces, commas and surrounding punctuation: 7,341 and 7341."""
    return _plain(one) == _plain(other)


def _plain(text: str) -> str:
    return " ".join(text.casefold().replace(",", "").split()).strip(" .!?\"'")


def not_these(lesson: Lesson) -> tuple[str, ...]:
    """Answers that are wrong now: those of the lessons it replaced."""
    return tuple(one for one in lesson.not_these if one and not alike(one, answer_of(lesson)))


def standing(own: LessonsState, key: str) -> Lesson | None:
    """The lesson that answers the question with this key."""
    return own.lessons.get(own.by_key.get(key, ""))


def rivals(own: LessonsState, lesson: str, worded: Worded) -> list[Lesson]:
    """Other lessons that answer one of its questions."""
    found = dict.fromkeys(own.by_key.get(key, "") for key in keys_of(worded))
    return [own.lessons[id_] for id_ in found if id_ not in ("", lesson)]


def outdated(own: LessonsState, lesson: Lesson, worded: Worded, found: Sequence[str]) -> list[Lesson]:
    """Older lessons with another answer: to the same question, or `found` on the same subject."""
    taught = (*(one.id for one in rivals(own, lesson.id, worded)), *found)
    older = [own.lessons[id_] for id_ in dict.fromkeys(taught) if id_ in own.lessons and id_ != lesson.id]
    return [one for one in older if one.state not in OUT and not alike(answer_of(one), worded.answer)]


def replaced(state: State, lesson: Lesson, by: str) -> list[Event]:
    """Events that replace a lesson by the lesson `by`."""
    return [LessonReplaced(lesson=lesson.id, by=by), *dropped(state, lesson, by, f"lesson {by} has another answer")]


def contradicted(state: State, lesson: Lesson, found: Sequence[Contradicted]) -> list[Event]:
    """Events that mark examples with another answer to the lesson's question as replaced, or take them out of the queue
    if they wait. A line with a lesson of its own is handled with that lesson."""
    places, own = places_of(state, [one.example for one in found]), state.lessons.of_line
    reason = f"lesson {lesson.id} has another answer"
    waiting = tuple(one for one, place in places.items() if place.state == "pending" and one not in own)
    events: list[Event] = [
        ExampleReplaced(example=one.example, lesson=lesson.id, reason=reason, answer=one.answer)
        for one in found
        if one.example not in places
    ]
    return [*events, ExampleWithdrawn(examples=waiting, by=lesson.id, reason=reason)] if waiting else events


def dropped(state: State, lesson: Lesson, by: str, reason: str) -> list[Event]:
    """The event that takes its examples out of the queue, if they wait there."""
    course = state.lessons.open
    examples = course.examples if course is not None and course.lesson == lesson.id else ()
    waiting = tuple(one for one in examples if waits(state, one))
    return [ExampleWithdrawn(examples=waiting, by=by, reason=reason)] if waiting else []


def waits(state: State, example: str) -> bool:
    """True if the example is in the queue; False if a step is learning it."""
    return bool(example) and any(one.example == example for one in state.intake.direct.waiting)


def is_practice(own: LessonsState, example: str) -> bool:
    """True if the example belongs to the present round of practice."""
    return own.open is not None and example in own.open.examples


def kin_practised(own: LessonsState) -> Kin:
    """Ids of the lessons that share the form of the lesson under way, itself included, and names of its neighbours."""
    lesson = own.lessons[own.open.lesson] if own.open is not None else None
    if lesson is None or lesson.worded is None:
        return Kin()
    names = {f"{NEIGHBOUR_NAME}{prompt}" for prompt in lesson.worded.neighbours}
    return Kin({one.id for one in own.of_form(lesson)}, names)


def practised_now(own: LessonsState, queue: Iterable[Waiting], tokens_max: int) -> list[Waiting]:
    """Queued practices that the next step learns as one batch: of one objective, and as many as fit `tokens_max` when
    padded. None while others of the round are being prepared or tokenised; only one after a step of several failed."""
    if own.open is None or own.open.stage is not Stage.LEARNING:
        return []
    waiting = [one for one in queue if one.example in own.open.examples]
    if not waiting or not all(one.digest for one in waiting):
        return []
    first, longest, taken = waiting[0], 0, list[Waiting]()
    for one in waiting:
        longest = max(longest, one.tokens)
        if taken and (first.alone or one.alone or longest * (len(taken) + 1) > tokens_max):
            break
        if one.objective == first.objective:
            taken.append(one)
    return taken
