"""What comes next for one pattern. Pure: a function of how far it is.

Held-out scenarios first; then a baseline on them, before anything is learned; then practices, each followed by a test
on a scenario that is new; when enough of those pass, a final round over what was held out. A pattern that settled is
tested again after each other one that settles.
"""

from collections.abc import Iterator
from math import ceil
from typing import NamedTuple

from apollod.core.dreams.events import Mode, Purpose
from apollod.core.dreams.state import Course, Tests

MISSES_MAX = 10
"""dreams that end early, in a row, after which a pattern is given up"""
TURN = 40
"""practices of one pattern before another one has its turn. Fewer, and each undoes what the other began to learn"""


class Imagine(NamedTuple):
    """A new dream."""

    purpose: Purpose
    mode: Mode = "bare"
    contrast: str = ""
    of: str = ""


class Case(NamedTuple):
    """A test of a held-out scenario."""

    round: str
    dream: str
    mode: Mode
    contrast: str = ""


class Settle(NamedTuple):
    """The final round was passed."""


class Unsettle(NamedTuple):
    """A recheck was not."""

    reason: str


Move = Imagine | Case | Settle | Unsettle | None


def rests(course: Course, settlings: int) -> bool:
    """Does nothing follow from it until another pattern settles, or somebody says so?"""
    if course.phase == "settled":
        return course.rechecked >= settlings and not course.taken_back and not course.failed
    return course.phase == "retired"


def next_move(course: Course, settlings: int) -> Move:
    """What is to be done; None: nothing now. `settlings`: how many patterns have settled so far."""
    if course.phase == "retired":
        return None
    if course.phase == "settled":
        return _recheck(course, settlings)
    if len(course.held) < course.pattern.held_out:
        return Imagine("held-out")
    if not course.baseline:
        return _untried(course, "baseline")
    if course.owed:
        return Imagine("variation", contrast=_tested_next(course), of=course.owed)
    if ready(course):
        name = f"final {course.practices}"
        return _untried(course, name) or (_practice(course) if course.failed else Settle())
    return _practice(course)


def _recheck(course: Course, settlings: int) -> Move:
    if course.rechecked < settlings:
        return _untried(course, f"recheck {settlings}")
    if course.failed:
        return Unsettle(f"of its held-out scenarios {told(course.final)} pass now")
    return None


def cases(course: Course, name: str) -> Iterator[Case]:
    """All tests of a round, in order: every held-out scenario bare and with one contrast text, in turn; for the
    baseline also with the instruction."""
    contrasts = course.pattern.contrasts
    for number, dream in enumerate(course.held):
        yield Case(name, dream, "bare")
        if name == "baseline":
            yield Case(name, dream, "told")
        yield Case(name, dream, "contrast", contrasts[number % len(contrasts)])


def _untried(course: Course, name: str) -> Case | None:
    """The next test of a round; None: it is complete."""
    tried = {(one.dream, one.mode) for one in course.tried} if course.round == name else set()
    return next((case for case in cases(course, name) if (case.dream, case.mode) not in tried), None)


def complete(course: Course) -> bool:
    """Is every test of the last round made?"""
    return _untried(course, course.round) is None


def ready(course: Course) -> bool:
    """Did enough of the last new scenarios pass, bare and in contrast, for a final round?"""
    passes, of = course.pattern.settle
    bare = course.bare[-of:]
    return len(bare) == of and sum(bare) >= passes and not weak_contrasts(course)


def weak_contrasts(course: Course) -> list[str]:
    """Contrast texts under which the behaviour shows too often lately, the worst first."""
    passes, of = course.pattern.settle
    worst = list[tuple[float, str]]()
    for text in course.pattern.contrasts:
        seen = [passed for said, passed in course.contrast if said == text][-of:]
        share = sum(seen) / len(seen) if seen else (0.0 if text in course.weak else 1.0)
        if share * of < passes:
            worst.append((share, text))
    return [text for _, text in sorted(worst)]


def enough(course: Course, tests: Tests) -> bool:
    """Do as many pass as have to, in each mode that counts?"""
    passes, of = course.pattern.settle
    return all(passed * of >= passes * count for mode, (passed, count) in tests.items() if mode != "told")


def _practice(course: Course) -> Imagine:
    """Bare, unless the behaviour leaks; in turns, where both are to be learned."""
    passes, of = course.pattern.settle
    weak, bare = weak_contrasts(course), course.bare[-of:]
    held = len(bare) == of and sum(bare) >= passes
    turn = course.practices + course.misses
    if weak and (held or turn % 2):
        return Imagine("practice", "contrast", weak[turn // 2 % len(weak)])
    return Imagine("practice")


def _tested_next(course: Course) -> str:
    """With which contrast text a variation is tested, too: each in turn."""
    contrasts = course.pattern.contrasts
    return contrasts[course.practices % len(contrasts)]


def tests_of(course: Course) -> Tests:
    """Of the last round, by mode."""
    found: Tests = {}
    for one in course.tried:
        passed, count = found.get(one.mode, (0, 0))
        found[one.mode] = (passed + one.passed, count + 1)
    return found


def told(tests: Tests) -> str:
    """Such as `9 of 10 bare and 8 of 10 contrast`."""
    return " and ".join(f"{passed} of {count} {mode}" for mode, (passed, count) in tests.items())


def spent(course: Course) -> str:
    """Why a pattern is given up; empty: it is not."""
    budget, (practices, tokens, days) = course.pattern, of_budget(course)
    if course.misses >= MISSES_MAX:
        return f"the last {course.misses} dreams ended early, the last one because: {course.missed}"
    if budget.dreams and practices >= budget.dreams:
        return f"{practices} practices were not enough (dreams = {budget.dreams})"
    if budget.tokens and tokens >= budget.tokens:
        return f"{tokens} tokens were not enough (tokens = {budget.tokens})"
    if budget.days and days > ceil(budget.days):
        return f"{days - 1} days on which it was dreamt of were not enough (days = {budget.days:g})"
    return ""


def of_budget(course: Course) -> tuple[int, int, int]:
    """Practices, tokens and days that count against its budget: since it was added, or unsettled the last time."""
    practices, tokens, days = course.before
    return course.practices - practices, course.tokens - tokens, course.days - days
