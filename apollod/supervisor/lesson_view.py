"""Views of lessons, and of patterns, which are also the lessons of behaviours. Pure, so that they also work on the fold
of a journal."""

from collections.abc import Iterator
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Any

import msgspec

from apollod.core.activities import Activity, blocked
from apollod.core.facts.dreams.course import of_budget, weak_contrasts
from apollod.core.facts.dreams.held_out_rounds import not_followed
from apollod.core.facts.dreams.state import Course as Behaviour
from apollod.core.facts.dreams.state import Tests, TestsAround
from apollod.core.facts.holding import drift_of
from apollod.core.facts.lessons import rounds
from apollod.core.facts.lessons.events import Tally
from apollod.core.facts.lessons.stages import Course, Stage, kind_of
from apollod.core.facts.lessons.state import Lesson, LessonsState
from apollod.core.rates import wilson
from apollod.core.rules.dreams import status as dreams_status
from apollod.core.rules.lessons.standing import not_these
from apollod.core.schedules import SECOND_NS
from apollod.core.state import State

KEPT = 0.125
"""divergence, nats a token, up to which a held answer counts as kept: at least three quarters of its probability are
unchanged, as the distance in total variation is at most the square root of half of the divergence (Pinsker's
inequality)"""

NONE_ASKED: Tally = (0, 0)

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


# --- patterns -------------------------------------------------------------------------------------------------------


def patterns_view(state: State, now_ns: int) -> dict[str, Any]:
    """All patterns in the order of their addition, the next dream, and the reason why none is made now."""
    return {
        "schema_version": 1,
        "reason": dreams_status.reason(state, now_ns),
        "next": dreams_status.upcoming(state),
        "patterns": [pattern_view(course, state, now_ns) for course in state.dreams.courses.values()],
    }


def pattern_view(course: Behaviour, state: State, now_ns: int) -> dict[str, Any]:
    """Facts about one pattern."""
    pattern = course.pattern
    return {
        "name": pattern.name,
        "state": course.phase,
        "reason": course.reason,
        "by": course.by,
        "added_at": course.since_ns / SECOND_NS,
        "instruction": pattern.instruction,
        "seeds": list(pattern.seeds),
        "check": msgspec.to_builtins(pattern.check),
        "contrast": list(pattern.contrasts),
        "contrast_held_out": list(pattern.held_out_contrasts),
        "contrast_given": bool(pattern.contrast),
        "objective": pattern.objective,
        "settle": list(pattern.settle),
        "held_out": pattern.held_out,
        "situations": {"wanted": pattern.situations, "there": len(course.situations), "reason": course.no_situations},
        "budget": {"dreams": pattern.dreams, "tokens": pattern.tokens, "days": pattern.days},
        "left": _left(course),
        "baseline": _rates(course.baseline),
        "final": _rates(course.final),
        "sampled": _rates(course.sampled),
        "final_held_out": _rates(course.contrast_held_out),
        "surroundings": _surroundings(course, state),
        "left_out": dict(course.left_out),
        "not_followed": not_followed(course),
        "baseline_around": _around(course.baseline_around),
        "final_around": _around(course.final_around),
        "window": {"bare": _window(course), "contrast": _contrast_window(course), "leaks": weak_contrasts(course)},
        "dreams": course.dreams,
        "practices": course.practices,
        "tokens": course.tokens,
        "misses": course.misses,
        "missed": course.missed,
        "guarded": _guarded(course, state),
        "settled_at": course.settled_at if course.phase == "settled" else None,
        "harmed_by": dict(course.harmed_by),
        "next": dreams_status.next_of(course, state),
        "waits": dreams_status.reason_of(course, state, now_ns),
    }


def _surroundings(course: Behaviour, state: State) -> list[str]:
    """Surroundings in which it is practised and tested."""
    settings = state.daemon.settings
    return list(settings.dream.surroundings_of(course.pattern) if settings is not None else course.pattern.surroundings)


def _around(tests: TestsAround) -> dict[str, Any]:
    """Like `_rates`, by kind of surrounding."""
    return {kind: _rates(some) for kind, some in tests.items()}


def _guarded(course: Behaviour, state: State) -> int | None:
    """The number of its contrast cases that are probes of the quality guard; None without a baseline."""
    if not state.quality.baseline:
        return None
    return sum(case.pattern == course.pattern.name for case in state.quality.contrasts)


def _rates(tests: Tests) -> dict[str, Any]:
    """Counts of a round of tests by mode, with the 95 % interval of the rate (Wilson)."""
    found = {}
    for mode, (passed, of) in tests.items():
        low, high = wilson(passed, of)
        found[mode] = {"passed": passed, "of": of, "low": round(low, 4), "high": round(high, 4)}
    return found


def _window(course: Behaviour) -> dict[str, int]:
    """The last M tests of new scenarios, as `settle` counts them."""
    last = course.bare[-course.pattern.settle[1] :]
    return {"passed": sum(last), "of": len(last)}


def _contrast_window(course: Behaviour) -> dict[str, int]:
    """The last M tests with each contrast text, as `settle` counts them, for the text with the lowest pass rate."""
    m = course.pattern.settle[1]
    by_text = [[passed for said, passed in course.contrast if said == text][-m:] for text in course.pattern.contrasts]
    worst = min(filter(None, by_text), key=lambda seen: sum(seen) / len(seen), default=[])
    return {"passed": sum(worst), "of": len(worst)}


def _left(course: Behaviour) -> dict[str, float | None]:
    """Rest of the budget; None for a limit that is not set."""
    budget, (practices, tokens, days) = course.pattern, of_budget(course)
    return {
        "dreams": max(0, budget.dreams - practices) if budget.dreams else None,
        "tokens": max(0, budget.tokens - tokens) if budget.tokens else None,
        "days": max(0.0, budget.days - days) if budget.days else None,
    }


def behaviour_of(state: State, name: str, given_at: float = 0.0) -> Behaviour | None:
    """The behaviour with this name; among several definitions of that name, the one `given_at` (Unix time), else the
    one in force."""
    own = state.dreams
    given = (one for one in own.replaced.get(name, ()) if given_at and one.since_ns / SECOND_NS == given_at)
    return next(given, None) or own.courses.get(name)


def behaviour_view(state: State, course: Behaviour, now_ns: int) -> dict[str, Any]:
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


def behaviour_row(course: Behaviour, now_ns: int) -> dict[str, Any]:
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
