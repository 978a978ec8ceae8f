"""Chooses the next lesson and the next call for it, and handles requests about lessons.

One lesson at a time and one call at a time; steps of other examples go on in between. A call is repeated until an event
records its outcome, and each practice has an example of its own, so a crash costs one more call and never a second
step. The work for each input does not depend on the number of lessons.
"""

from collections import Counter

import msgspec

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.facts.forgetting import Wish
from apollod.core.facts.lessons import rounds
from apollod.core.facts.lessons.rounds import longest_s
from apollod.core.facts.lessons.stages import Course, Stage
from apollod.core.facts.lessons.state import OUT, Lesson
from apollod.core.kernel.composing import composed
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Handlers
from apollod.core.rules.dreams import status as dreams_status
from apollod.core.rules.lessons.replies import ANSWERS, given_up, missed, next_practice
from apollod.core.rules.lessons.standing import dropped, not_these, replaced, rivals, waits
from apollod.core.schedules import SECOND_NS, is_due
from apollod.core.settings import LessonSettings
from apollod.core.shared.places import places_of, taken_back
from apollod.core.state import State


def advance(state: State, now_ns: int) -> Outcome:
    """The next call or lesson, if one may begin."""
    own, settings = state.lessons, state.daemon.settings
    if settings is None or state.daemon.stopping or not own.lessons:
        return nothing()
    for id_, why in own.harmful.items():
        return Outcome(_given_up(state, own.lessons[id_], f"one of its examples is held: {why}", now_ns), [])
    if own.open is not None and own.open.stage is Stage.LEARNING:
        return _learning(state, own.open, now_ns)
    next_ = "" if own.open is not None else _next(state, settings.lessons, now_ns)
    if (own.open is None and not next_) or blocked(Activity.TEACHING, state):
        return nothing()
    if own.open is None:
        return Outcome([_begun(own.lessons[next_])], [])
    if not own.retry.is_due(now_ns):
        return nothing()
    return Outcome([], [call_of(state, settings.lessons, own.open)])


def _given_up(state: State, lesson: Lesson, reason: str, now_ns: int, by: str = "apollod") -> list[ev.Event]:
    return [*dropped(state, lesson, by, reason), given_up(state, lesson, reason, now_ns, by)]


def _learning(state: State, course: Course, now_ns: int) -> Outcome:
    """Record a practice as missed if its example is not going to be learned."""
    taken = {one.example for one in state.intake.taken}
    gone = next((one for one in course.examples if one not in taken and not waits(state, one)), "")
    if not gone:
        return nothing()
    return Outcome(missed(state, f"its example is not learned: `apollod ctl why {gone}` says why", now_ns, gone), [])


def _next(state: State, settings: LessonSettings, now_ns: int) -> str:
    """The next lesson: one whose line waits for its first look, else waiting lessons and due ones by turns."""
    own = state.lessons
    if (looked := next(iter(state.intake.first_looks.values()), "")) in own.queue:
        return looked
    waiting = next(iter(own.queue), "")
    return waiting if waiting and own.asked_again else _due(state, settings, now_ns) or waiting


def _due(state: State, settings: LessonSettings, now_ns: int) -> str:
    """The first known lesson to be asked again; empty: none is due."""
    own = state.lessons
    if own.due and is_due(now_ns, own.due[0][0], longest_s(settings.ask_again)):
        return f"L{own.due[0][1]}"
    if own.due_steps and own.due_steps[0][0] <= state.training.version:
        return f"L{own.due_steps[0][1]}"
    return ""


def _begun(lesson: Lesson) -> ev.LessonBegun:
    if lesson.state == "known":
        return ev.LessonBegun(lesson=lesson.id, stage=Stage.AGAIN, why="again")
    why = "fading" if lesson.state == "fading" else "requested" if lesson.reason else "given"
    goes_on = lesson.steps or lesson.state == "fading" or rounds.can_be_told(lesson)
    first = Stage.TESTING if goes_on else Stage.BASELINE
    return ev.LessonBegun(lesson=lesson.id, stage=first if lesson.worded is not None else Stage.WORDING, why=why)


def call_of(state: State, settings: LessonSettings, course: Course) -> fx.Effect:
    """The call that the lesson under way waits for."""
    own = state.lessons
    lesson, attempt = own.lessons[course.lesson], own.retry.failures + 1
    if lesson.worded is None:
        return fx.WordLesson(lesson.id, attempt, lesson.given)
    if course.stage is Stage.PREPARING:
        return fx.PrepareLesson(
            lesson.id, attempt, next_practice(lesson, course), lesson.told, lesson.worded.practice[course.todo[0]],
            settings.practice, not_these(lesson),
        )  # fmt: skip
    return fx.AskLesson(
        lesson.id, attempt, course.stage, rounds.mode_of(course.stage), course.round, len(course.tried),
        lesson.told if course.stage is Stage.TOLD else "", rounds.asks(lesson, lesson.worded, course),
        not_these(lesson),
    )  # fmt: skip


def _on_wanted(state: State, input_: inp.LessonWanted, now_ns: int) -> Outcome:
    own = state.lessons
    id_ = f"L{own.number + 1}"
    events: list[ev.Event] = [composed(ev.LessonGiven, input_, lesson=id_)]
    older = own.lessons.get(input_.replaces)
    if older is not None and older.state != "replaced":
        events += replaced(state, older, id_)
    return Outcome(events, [])


def _on_requested(state: State, input_: inp.LessonRequested, now_ns: int) -> Outcome:
    """Practise a known or given up lesson again, unless another one answers its question."""
    own = state.lessons
    lesson = own.lessons.get(input_.lesson)
    if lesson is None or lesson.state not in ("known", "given up") or _is_open(state, lesson):
        return nothing()
    if lesson.worded is not None and rivals(own, lesson.id, lesson.worded):
        return nothing()
    return Outcome([input_], [])


def _on_unwanted(state: State, input_: inp.LessonUnwanted, now_ns: int) -> Outcome:
    """Give the lesson up, and forget its steps like any others."""
    lesson = state.lessons.lessons.get(input_.lesson)
    if lesson is None:
        return nothing()
    reason = f"{input_.by} had lesson {lesson.id} forgotten"
    wishes = {example: Wish(input_.by, reason) for example in lesson.examples}
    places = places_of(state, wishes)
    over = lesson.state in OUT
    events = [] if over else _given_up(state, lesson, reason, now_ns, input_.by)
    if (line := places.get(lesson.example)) is not None and line.state == "pending":
        events.append(ev.ExampleWithdrawn(examples=(lesson.example,), by=input_.by, reason=reason))
    return Outcome([*events, *taken_back(state, wishes, places, again=True)], [])


def _is_open(state: State, lesson: Lesson) -> bool:
    return state.lessons.open is not None and state.lessons.open.lesson == lesson.id


class Lessons(msgspec.Struct, frozen=True, kw_only=True):
    """Lessons of all kinds, by their state; a behaviour's id is its pattern's name."""

    waiting: int = 0
    """their turn has not come"""
    practising: int = 0
    known: int = 0
    fading: int = 0
    """were known, and wait for their turn"""
    replaced: int = 0
    """another lesson has another answer to the same question"""
    given_up: int = 0
    lesson: str = ""
    """the one under way; empty: none"""
    stage: str = ""
    """its stage"""
    reason: str = ""
    """why no lesson is asked or prepared now, or, if only behaviours are left, no dream is made; empty: nothing
    prevents it"""
    error: str = ""
    """why the last call had no usable answer; empty after a usable one"""
    due_at: float | None = None
    """Unix time at which a known one is asked again; null: none"""


def status(state: State, now_ns: int) -> Lessons:
    """The number of lessons in each state, and the present activity: for facts, else for behaviours."""
    own, dreams = state.lessons, state.dreams
    if not own.lessons and not dreams.courses:
        return Lessons()
    states = Counter(one.state for one in own.lessons.values()) + Counter(one.state for one in dreams.definitions)
    course = own.open
    due = own.due[0][0] if own.due else 0
    if course is None and not own.queue and any(one.phase == "active" for one in dreams.courses.values()):
        dream = dreams.open
        under_way = (dream.pattern, str(dream.stage)) if dream is not None else ("", "")
        reason, error = dreams_status.reason(state, now_ns), dreams.error
    else:
        under_way = (course.lesson, str(course.stage)) if course is not None else ("", "")
        reason, error = blocked(Activity.TEACHING, state), own.error
    return Lessons(
        waiting=states["waiting"], practising=states["practising"], known=states["known"], fading=states["fading"],
        replaced=states["replaced"], given_up=states["given up"], lesson=under_way[0], stage=under_way[1],
        reason=reason, error=error, due_at=due / SECOND_NS if due else None,
    )  # fmt: skip


HANDLERS: Handlers = {
    **ANSWERS,
    inp.LessonWanted: _on_wanted,
    inp.LessonRequested: _on_requested,
    inp.LessonUnwanted: _on_unwanted,
}
