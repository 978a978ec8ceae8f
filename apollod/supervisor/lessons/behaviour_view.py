"""Views of behaviours, with the fields of other lessons. Pure."""

from typing import Any

from apollod.core.dreams import status as dreams_status
from apollod.core.dreams.state import Course
from apollod.core.lessons.events import Tally
from apollod.core.schedules import SECOND_NS
from apollod.core.state import State
from apollod.supervisor.dreaming.pattern_view import pattern_view

NONE_ASKED: Tally = (0, 0)


def behaviour_of(state: State, name: str, given_at: float = 0.0) -> Course | None:
    """The behaviour with this name; among several definitions of that name, the one `given_at` (Unix time), else the
    one in force."""
    own = state.dreams
    given = (one for one in own.replaced.get(name, ()) if given_at and one.since_ns / SECOND_NS == given_at)
    return next(given, None) or own.courses.get(name)


def behaviour_view(state: State, course: Course, now_ns: int) -> dict[str, Any]:
    """View of a behaviour. `pattern`: as in `apollod ctl pattern show`; `round`: practices so far; `asked`: the last
    new scenarios, bare."""
    name, stands = course.pattern.name, course.state != "replaced"
    waits = dreams_status.reason_of(course, state, now_ns) if course.phase == "active" else ""
    dream = state.dreams.open
    return {
        **behaviour_row(course, now_ns),
        "statement": course.pattern.instruction,
        "by": course.by,
        "example": None,
        "replaced_by": None if stands else name,
        "not_these": [],
        "stage": (dreams_status.next_of(course, state) or None) if stands and not waits else None,
        "round": course.practices,
        "asked": [sum(course.bare), len(course.bare)],
        "waits": waits,
        "error": state.dreams.error if dream is not None and dream.pattern == name and stands else "",
        "told": course.pattern.instruction,
        "practice": [],
        "held_out": [],
        "dropped": {},
        "examples": list(course.examples),
        "due_at": None,
        "due_step": None,
        "curve": [],
        "pattern": pattern_view(course, state, now_ns) if stands else None,
    }


def behaviour_row(course: Course, now_ns: int) -> dict[str, Any]:
    """The row of a behaviour in a list. `steps`: practices, a step each; `drift`: 0, not measured; `seconds`: from its
    addition until it was known or given up."""
    over = course.moved_ns if course.phase != "active" else now_ns
    return {
        "lesson": course.pattern.name,
        "kind": "behaviour",
        "state": course.state,
        "reason": course.reason,
        "question": course.pattern.instruction,
        "answer": "",
        "before": {mode: list(course.baseline.get(mode, NONE_ASKED)) for mode in ("bare", "told")},
        "after": {"bare": list(course.final.get("bare", NONE_ASKED))},
        "steps": course.practices,
        "drift": 0.0,
        "seconds": round(max(0, over - course.since_ns) / SECOND_NS, 3),
        "given_at": course.since_ns / SECOND_NS,
        "document": None,
    }
