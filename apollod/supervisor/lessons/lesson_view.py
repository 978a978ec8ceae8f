"""What people are told of lessons. Pure: the fold of a journal has lessons, too."""

from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import Any

import msgspec

from apollod.core.activities import Activity, blocked
from apollod.core.lessons import rounds
from apollod.core.lessons.drift import drift_of
from apollod.core.lessons.events import Tally
from apollod.core.lessons.open_course import Course
from apollod.core.lessons.stages import Stage
from apollod.core.lessons.standing import not_these
from apollod.core.lessons.state import Lesson, LessonsState
from apollod.core.schedules import SECOND_NS
from apollod.core.state import State
from apollod.wire import status as st

NONE_ASKED: Tally = (0, 0)
KEPT = 0.125
"""nats a token by which a held answer may have moved: at least three quarters of its probability are where they were,
as the distance in total variation is at most the square root of half of the divergence (Pinsker's inequality)"""


def lesson_of(own: LessonsState, id_: str) -> Lesson | None:
    """The lesson with this id, or the number in it."""
    return own.lessons.get(f"L{id_.strip().upper().removeprefix('L')}")


def lesson_view(state: State, lesson: Lesson, now_ns: int) -> dict[str, Any]:
    """All about a lesson. Pairs are (passed, of how many), (0, 0) where nothing was asked. `kept`: of what is held
    now."""
    course, worded = _course(state, lesson), lesson.worded
    return {
        "schema_version": 1,
        **lesson_row(state, lesson, now_ns),
        "kept": list(_kept(state)),
        "statement": lesson.given.statement,
        "by": lesson.by,
        "replaced_by": lesson.replaced_by or None,
        "not_these": list(not_these(lesson)),
        "stage": str(course.stage) if course is not None else None,
        "round": course.round if course is not None else lesson.rounds,
        "asked": _asked(course),
        "waits": _waits(state, lesson),
        "error": state.lessons.error if course is not None else "",
        "told": lesson.told,
        "practice": msgspec.to_builtins(worded.practice) if worded is not None else [],
        "held_out": msgspec.to_builtins(worded.held_out) if worded is not None else [],
        "dropped": dict(worded.dropped) if worded is not None else {},
        "examples": list(lesson.examples),
        "due_at": lesson.due_ns / SECOND_NS if lesson.due_ns else None,
        "due_step": lesson.due_step or None,
        "curve": [
            {"at": point.at_ns / SECOND_NS, "step": point.step, "bare": [point.passed, point.of]}
            for point in lesson.curve
        ],
    }


def lesson_row(state: State, lesson: Lesson, now_ns: int) -> dict[str, Any]:
    """What a list says of it."""
    worded, given, course = lesson.worded, lesson.given, _course(state, lesson)
    seconds = (now_ns - course.since_ns) / SECOND_NS if course is not None else 0.0
    return {
        "lesson": lesson.id,
        "state": lesson.state,
        "reason": lesson.reason,
        "question": worded.question if worded is not None else given.question or given.statement,
        "answer": given.answer or (worded.answer if worded is not None else ""),
        "before": {mode: list(lesson.before.get(mode, NONE_ASKED)) for mode in ("bare", "told")},
        "after": {"bare": list(lesson.after or NONE_ASKED)},
        "steps": lesson.steps,
        "drift": drift_of(state) - course.drift_from if course is not None else lesson.drift,
        "seconds": round(lesson.seconds + max(0.0, seconds), 3),
        "given_at": lesson.given_ns / SECOND_NS,
    }


def lessons_view(state: State, only: str, limit: int, now_ns: int) -> dict[str, Any]:
    """The newest lessons, the newest first."""
    found: Iterable[Lesson] = reversed(state.lessons.lessons.values())
    chosen = (lesson for lesson in found if only in ("", lesson.state))
    listed = islice(chosen, limit or None)
    return {"schema_version": 1, "lessons": [lesson_row(state, lesson, now_ns) for lesson in listed]}


def lessons_status(state: State) -> st.Lessons:
    """How many there are in which state, and what is done now."""
    own = state.lessons
    if not own.lessons:
        return st.Lessons()
    states, course = Counter(lesson.state for lesson in own.lessons.values()), own.open
    due = own.due[0][0] if own.due else 0
    return st.Lessons(
        waiting=states["waiting"], practising=states["practising"], known=states["known"], fading=states["fading"],
        replaced=states["replaced"], given_up=states["given up"], lesson=course.lesson if course is not None else "",
        stage=str(course.stage) if course is not None else "", reason=blocked(Activity.TEACHING, state),
        error=own.error, due_at=due / SECOND_NS if due else None,
    )  # fmt: skip


def _course(state: State, lesson: Lesson) -> Course | None:
    """It, if the lesson is under way."""
    course = state.lessons.open
    return course if course is not None and course.lesson == lesson.id else None


def _asked(course: Course | None) -> list[int]:
    """Greedy answers of the stage that asks now."""
    return list(rounds.tally(course.tried)) if course is not None else list(NONE_ASKED)


def _kept(state: State) -> Tally:
    """Answers that steps hold: those that had not moved far when they were held last."""
    moved = [one.moved for one in state.holding.anchors.values() if one.moved is not None]
    return sum(one <= KEPT for one in moved), len(moved)


def _waits(state: State, lesson: Lesson) -> str:
    """Why nothing happens for it now; empty where it is under way, or nothing is left to do."""
    own = state.lessons
    if (course := _course(state, lesson)) is not None:
        activity = Activity.STEP if course.stage is Stage.LEARNING else Activity.TEACHING
        return "" if _is_learned(state, course) else blocked(activity, state)
    if lesson.id not in own.queue:
        return ""
    if why := blocked(Activity.TEACHING, state):
        return why
    before = list(own.queue).index(lesson.id) + (own.open is not None)
    return f"{before} other lesson{'s come' if before > 1 else ' comes'} first" if before else ""


def _is_learned(state: State, course: Course) -> bool:
    """Is a step learning its example now?"""
    running = state.training.running
    return bool(course.example) and running is not None and course.example in running.examples
