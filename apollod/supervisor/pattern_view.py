"""Views of patterns: for `ctl pattern`, and as behaviours with the fields of other lessons. Pure, so that they also
work on the fold of a journal."""

from typing import Any

import msgspec

from apollod.core.facts.dreams.course import of_budget, weak_contrasts
from apollod.core.facts.dreams.held_out_rounds import not_followed
from apollod.core.facts.dreams.state import Course, Tests, TestsAround
from apollod.core.facts.lessons.events import Tally
from apollod.core.rates import wilson
from apollod.core.rules.dreams import status as dreams_status
from apollod.core.schedules import SECOND_NS
from apollod.core.state import State

NONE_ASKED: Tally = (0, 0)


def patterns_view(state: State, now_ns: int) -> dict[str, Any]:
    """All patterns in the order of their addition, the next dream, and the reason why none is made now."""
    return {
        "schema_version": 1,
        "reason": dreams_status.reason(state, now_ns),
        "next": dreams_status.upcoming(state),
        "patterns": [pattern_view(course, state, now_ns) for course in state.dreams.courses.values()],
    }


def pattern_view(course: Course, state: State, now_ns: int) -> dict[str, Any]:
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


def _surroundings(course: Course, state: State) -> list[str]:
    """Surroundings in which it is practised and tested."""
    settings = state.daemon.settings
    return list(settings.dream.surroundings_of(course.pattern) if settings is not None else course.pattern.surroundings)


def _around(tests: TestsAround) -> dict[str, Any]:
    """Like `_rates`, by kind of surrounding."""
    return {kind: _rates(some) for kind, some in tests.items()}


def _guarded(course: Course, state: State) -> int | None:
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


def _window(course: Course) -> dict[str, int]:
    """The last M tests of new scenarios, as `settle` counts them."""
    last = course.bare[-course.pattern.settle[1] :]
    return {"passed": sum(last), "of": len(last)}


def _contrast_window(course: Course) -> dict[str, int]:
    """The last M tests with each contrast text, as `settle` counts them, for the text with the lowest pass rate."""
    m = course.pattern.settle[1]
    by_text = [[passed for said, passed in course.contrast if said == text][-m:] for text in course.pattern.contrasts]
    worst = min(filter(None, by_text), key=lambda seen: sum(seen) / len(seen), default=[])
    return {"passed": sum(worst), "of": len(worst)}


def _left(course: Course) -> dict[str, float | None]:
    """Rest of the budget; None for a limit that is not set."""
    budget, (practices, tokens, days) = course.pattern, of_budget(course)
    return {
        "dreams": max(0, budget.dreams - practices) if budget.dreams else None,
        "tokens": max(0, budget.tokens - tokens) if budget.tokens else None,
        "days": max(0.0, budget.days - days) if budget.days else None,
    }


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
