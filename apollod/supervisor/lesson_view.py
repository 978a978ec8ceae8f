"""Views of lessons: one, and the list. Pure, so that they also work on the fold of a journal."""

from collections.abc import Iterator
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Any

import msgspec

from apollod.core.activities import Activity, blocked
from apollod.core.facts.dreams.state import Course as Behaviour
from apollod.core.facts.holding import drift_of
from apollod.core.facts.lessons import rounds
from apollod.core.facts.lessons.events import Tally
from apollod.core.facts.lessons.stages import Course, Stage, kind_of
from apollod.core.facts.lessons.state import Lesson, LessonsState
from apollod.core.rules.lessons.standing import not_these
from apollod.core.schedules import SECOND_NS
from apollod.core.state import State
from apollod.supervisor.pattern_view import NONE_ASKED, behaviour_of, behaviour_row, behaviour_view

KEPT = 0.125
"""divergence, nats a token, up to which a held answer counts as kept: at least three quarters of its probability are
unchanged, as the distance in total variation is at most the square root of half of the divergence (Pinsker's
inequality)"""

Given = tuple[int, Lesson | Behaviour]
"""(time in ns, lesson)"""


def lesson_of(own: LessonsState, id_: str) -> Lesson | None:
    """The lesson with this id, or the number in it."""
    return own.lessons.get(f"L{id_.strip().upper().removeprefix('L')}")


def found(state: State, id_: str, given_at: float = 0.0) -> Lesson | Behaviour | None:
    """The lesson of any kind with this id: the name of a behaviour (the one `given_at`, see `behaviour_of`), or as in
    `lesson_of`."""
    return behaviour_of(state, id_, given_at) or lesson_of(state.lessons, id_)


def lesson_view(state: State, lesson: Lesson | Behaviour, now_ns: int) -> dict[str, Any]:
    """View of a lesson. Pairs are (passed, count), (0, 0) if nothing was asked. `kept`: of the answers held now."""
    told = behaviour_view(state, lesson, now_ns) if isinstance(lesson, Behaviour) else _fact_view(state, lesson, now_ns)
    return {"schema_version": 1, **told, "kept": list(_kept(state))}


def _fact_view(state: State, lesson: Lesson, now_ns: int) -> dict[str, Any]:
    course, worded = _course(state, lesson), lesson.worded
    return {
        **lesson_row(state, lesson, now_ns),
        "statement": lesson.given.statement,
        "by": lesson.by,
        "example": lesson.example or None,
        "replaced_by": lesson.replaced_by or None,
        "not_these": list(not_these(lesson)),
        "stage": str(course.stage) if course is not None else None,
        "round": course.round if course is not None else lesson.rounds,
        "asked": list(rounds.tally(course.tried)) if course is not None else list(NONE_ASKED),
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


def lesson_row(state: State, lesson: Lesson | Behaviour, now_ns: int) -> dict[str, Any]:
    """The row of a lesson in a list."""
    if isinstance(lesson, Behaviour):
        return behaviour_row(lesson, now_ns)
    worded, given, course = lesson.worded, lesson.given, _course(state, lesson)
    seconds = (now_ns - course.since_ns) / SECOND_NS if course is not None else 0.0
    return {
        "lesson": lesson.id,
        "kind": kind_of(given),
        "state": lesson.state,
        "reason": lesson.reason,
        "question": worded.question if worded is not None else given.question or given.statement,
        "answer": given.answer or (worded.answer if worded is not None else ""),
        "before": {mode: list(lesson.before.get(mode, NONE_ASKED)) for mode in ("bare", "told")},
        "after": {"bare": list(lesson.after or NONE_ASKED)},
        "steps": lesson.steps,
        "drift": drift_of(state.holding) - course.drift_from if course is not None else lesson.drift,
        "seconds": round(lesson.seconds + max(0.0, seconds), 3),
        "given_at": lesson.given_ns / SECOND_NS,
        "document": given.document or None,
    }


def lessons_view(state: State, only: str, limit: int, now_ns: int, document: str = "") -> dict[str, Any]:
    """Lessons, the newest first, of this document (empty: any)."""
    chosen = (one for one in _newest(state) if only in ("", one.state) and document in ("", _document(one)))
    listed = islice(chosen, limit or None)
    return {"schema_version": 1, "lessons": [lesson_row(state, lesson, now_ns) for lesson in listed]}


def _newest(state: State) -> Iterator[Lesson | Behaviour]:
    facts: Iterator[Given] = ((one.given_ns, one) for one in reversed(state.lessons.lessons.values()))
    behaviours: list[Given] = [(one.since_ns, one) for one in reversed(state.dreams.definitions)]
    newest = sorted(behaviours, key=itemgetter(0), reverse=True)
    return (one for _, one in merge(facts, newest, key=itemgetter(0), reverse=True))


def _document(one: Lesson | Behaviour) -> str:
    return one.given.document if isinstance(one, Lesson) else ""


def _course(state: State, lesson: Lesson) -> Course | None:
    """The course of the lesson, if it is under way."""
    course = state.lessons.open
    return course if course is not None and course.lesson == lesson.id else None


def _kept(state: State) -> Tally:
    """Answers that steps hold: (those that moved at most KEPT when last held, all that were held)."""
    moved = [one.moved for one in state.holding.anchors.values() if one.moved is not None]
    return sum(one <= KEPT for one in moved), len(moved)


def _waits(state: State, lesson: Lesson) -> str:
    """Reason why nothing happens for the lesson now; empty: it is under way, or nothing is left to do."""
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
    """True if a step is learning examples of the lesson now."""
    running = state.training.running
    return running is not None and any(one in running.examples for one in course.examples)
