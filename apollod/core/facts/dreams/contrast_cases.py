"""Selects the tests of patterns that the quality guard repeats: held-out scenarios under texts that make the behaviour
wrong. Pure.

Practised and settled patterns are included: learning, also by their own practices, must not make the behaviour show
where it would be wrong. Retired ones are not: the behaviour is no longer wanted.
"""

from collections.abc import Sequence
from math import lcm
from typing import TypeVar

import msgspec

from apollod.core.facts.dreams.scenario import Turn
from apollod.core.facts.dreams.state import Course, DreamsState
from apollod.core.settings import Check

CASES_MAX = 12
"""most cases of a pattern: a few more than a look asks of any group"""

One = TypeVar("One")


class ContrastCase(msgspec.Struct, frozen=True):
    """A held-out scenario after the system message `text`, under which the behaviour must not show. It is complete in
    itself, since its pattern may be gone or changed when it is asked again."""

    pattern: str
    dream: str
    text: str
    scenario: tuple[Turn, ...]
    check: Check


def contrast_cases(own: DreamsState) -> tuple[ContrastCase, ...]:
    """Cases of each pattern that is not retired and has all its held-out scenarios, in the order of patterns. Cases of
    one pattern are spread evenly over its scenarios and its texts, and are the same each time."""
    return tuple(
        case
        for course in own.courses.values()
        if course.phase != "retired" and len(course.held) >= course.pattern.held_out
        for case in _cases(course)
    )


def _cases(course: Course) -> list[ContrastCase]:
    pattern = course.pattern
    held, texts = _spread(list(course.held.items())), _spread(pattern.tested_contrasts)
    round_ = lcm(len(held), len(texts))  # after which each scenario meets the next text
    return [
        ContrastCase(pattern.name, dream, texts[(number + number // round_) % len(texts)], one.scenario, pattern.check)
        for number in range(min(CASES_MAX, len(held) * len(texts)))
        for dream, one in [held[number % len(held)]]
    ]


def _spread(all_: Sequence[One]) -> list[One]:
    """At most CASES_MAX items, at even distances."""
    count = min(CASES_MAX, len(all_))
    return [all_[number * len(all_) // count] for number in range(count)]
