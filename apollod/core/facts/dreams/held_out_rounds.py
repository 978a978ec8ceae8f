"""Tests a pattern on its held-out scenarios, in rounds. Pure: a function of the pattern's progress.

A round asks each held-out scenario once, for the most likely answer. If enough of them pass in a round that decides,
answers are sampled in each kind of surrounding until the error bound of `core.proof` is reached.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import lcm
from typing import NamedTuple, TypeVar
from zlib import crc32

import msgspec

from apollod.core.facts.dreams.events import WRONG, Mode
from apollod.core.facts.dreams.scenario import Turn
from apollod.core.facts.dreams.state import Course, DreamsState, HeldOut, Tests, TestsAround, Tried
from apollod.core.proof import decided
from apollod.core.settings import Check


class Case(NamedTuple):
    """A test of a held-out scenario: its most likely answer (`sample` 0), or its nth sampled one."""

    round: str
    dream: str
    mode: Mode
    contrast: str = ""
    sample: int = 0


FOLLOWED_OF = 2
"""told tests in a kind of surrounding from which a kind without any pass is left out"""

Sampled = dict[tuple[str, Mode], list[bool]]
"""results of the sampled tests of a round, by scenario and mode"""


def _modes(course: Course, name: str) -> tuple[Mode, ...]:
    """Modes in which each held-out scenario is tested in a round. A behaviour that was shown before any teaching is
    only tested bare, for whether it stays; where it is wrong, it is not ours to correct."""
    wrong: tuple[Mode, ...] = ("contrast", "situation") if course.situations else ("contrast",)
    if name == "baseline":
        return ("bare", "told", *wrong)
    return ("bare",) if name == "shown" or not course.taught else ("bare", *wrong)


def not_followed(course: Course) -> dict[str, str]:
    """Kinds of surrounding in which no held-out scenario passed at the baseline, even when told, with the reason: they
    are left out of practices and tests. A small model follows an instruction bare and loses it after an agent's 2,000
    tokens. Logs teach without an instruction, so for them all kinds count."""
    if course.bootstraps:
        return {}
    found: dict[str, str] = {}
    for kind, tests in course.baseline_around.items():
        (told, of), (bare, _) = tests.get("told", (0, 0)), tests.get("bare", (0, 0))
        if of >= FOLLOWED_OF and not told and not bare:
            found[kind] = f"the model does not do it there even when it is told: 0 of {of}"
    return found


def _tested_in(course: Course, mode: Mode) -> dict[str, HeldOut]:
    """Scenarios that are tested in this mode."""
    return course.situations if mode == "situation" else course.held


def cases(course: Course, name: str) -> Iterator[Case]:
    """Tests of the most likely answers in a round, in order: every held-out scenario, in contrast under one text,
    practised and held-out texts in turn, and every situation; not bare in surroundings where the instruction is not
    followed."""
    contrasts, modes, left_out = course.pattern.tested_contrasts, _modes(course, name), not_followed(course)
    for number, (dream, scenario) in enumerate(course.apart.items()):
        for mode in (mode for mode in modes if dream in _tested_in(course, mode)):
            if mode == "bare" and name != "baseline" and scenario.surrounding.kind in left_out:
                continue
            yield Case(name, dream, mode, contrasts[number % len(contrasts)] if mode == "contrast" else "")


def untried(course: Course, name: str) -> list[Case]:
    """The next tests of a round, in order; none: it is complete. If the most likely answers pass in a round that
    decides, answers are sampled until it is decided (`core.proof`)."""
    own = course.tried if course.round == name else []
    tried = {(one.dream, one.mode) for one in own if not one.sample}
    left = [case for case in cases(course, name) if name != "shown" and (case.dream, case.mode) not in tried]
    if left:
        return left
    if name in ("", "baseline") or name.startswith("recheck") or (name != "shown" and not _passes(course, own)):
        return []
    sampled = _sampled(own)
    groups = [(group, _proved(course, sampled, group)) for group in _groups(course, name)]
    if any(known is False for _, known in groups):
        return []
    contrasts = course.pattern.tested_contrasts
    left = [case for group, known in groups if known is None for case in _next_cycle(sampled, group)]
    return [case._replace(contrast=_drawn(case, contrasts)) if case.contrast else case for case in left]


def _next_cycle(sampled: Sampled, group: Sequence[Case]) -> list[Case]:
    """Tests that the cycle under way still needs; if it is complete, those of the next one."""
    counts = [len(sampled.get((case.dream, case.mode), ())) for case in group]
    sample = sum(counts) // len(group) + 1
    return [case._replace(sample=sample) for case, count in zip(group, counts, strict=True) if count < sample]


def _drawn(case: Case, contrasts: Sequence[str]) -> str:
    """A contrast text, drawn uniformly, so that the bound holds for all of them together; deterministic for a case."""
    return contrasts[crc32(f"{case.round} {case.dream} {case.sample}".encode()) % len(contrasts)]


def _sampled(tried: Iterable[Tried]) -> Sampled:
    """Results of the sampled tests, by scenario and mode."""
    found: Sampled = {}
    for one in tried:
        if one.sample:
            found.setdefault((one.dream, one.mode), []).append(one.passed)
    return found


def _groups(course: Course, name: str) -> list[list[Case]]:
    """Groups of tests that keep the error bound: one for each kind of surrounding, since a behaviour may be missing in
    one of four and still show in 9 of 10 answers over all. Situations, of which there may be only one in each kind,
    form one group."""
    groups: dict[tuple[Mode, str], list[Case]] = {}
    for case in cases(course, name):
        kind = "" if case.mode == "situation" else course.held[case.dream].surrounding.kind
        groups.setdefault((case.mode, kind), []).append(case)
    return list(groups.values())


def _proved(course: Course, sampled: Sampled, group: Sequence[Case]) -> bool | None:
    """True if the sampled answers of a group show the behaviour, or in contrast its absence; False if the rest of this
    round cannot show it; None while it can."""
    passed = [one for case in group for one in sampled.get((case.dream, case.mode), ())]
    return decided(passed, max(1, course.proofs), len(group)) if len(passed) % len(group) == 0 else None


def round_failed(course: Course) -> bool:
    """True if a complete round was not passed."""
    name = course.round
    if name != "shown" and not _passes(course, course.tried):
        return True
    if name.startswith("recheck"):
        return False
    sampled = _sampled(course.tried)
    return not all(_proved(course, sampled, group) for group in _groups(course, name))


def _passes(course: Course, tried: Sequence[Tried]) -> bool:
    """True if enough of the most likely answers pass, also among those under held-out contrast texts."""
    likely = [one for one in tried if not one.sample]
    return enough(course, _by_mode(likely), _around(likely)) and enough(
        course, {}, {"": _held_out_contrast(course, likely)}
    )


def _held_out_contrast(course: Course, tried: Iterable[Tried]) -> Tests:
    held_out = course.pattern.held_out_contrasts
    return _by_mode(one for one in tried if one.contrast in held_out)


def held_out_contrast(course: Course) -> Tests:
    """Counts of the most likely answers of the last round under held-out contrast texts."""
    return _held_out_contrast(course, course.tried)


def shown_under(course: Course) -> dict[str, int]:
    """Held-out contrast texts under which every test of the last round failed, with the number of consecutive final
    rounds of which this is true."""
    passed: dict[str, bool] = {}
    held_out = course.pattern.held_out_contrasts
    for one in course.tried:
        if one.contrast in held_out and not one.sample:
            passed[one.contrast] = passed.get(one.contrast, False) or one.passed
    return {text: course.shown_under.get(text, 0) + 1 for text, any_ in passed.items() if not any_}


def weak_after(course: Course) -> tuple[str, ...]:
    """Contrast texts to practise after a failed final round: those that failed, or all if a situation or a held-out
    text failed."""
    failed = {one.contrast for one in course.tried if one.mode in WRONG and not one.passed}
    practised = course.pattern.contrasts
    return practised if failed - set(practised) else tuple(text for text in practised if text in failed)


def complete(course: Course) -> bool:
    """True if every test of the last round is made."""
    return not untried(course, course.round)


def enough(course: Course, tests: Tests, around: TestsAround) -> bool:
    """True if the required share of tests passes in each mode that counts. Each kind of surrounding has few tests:
    there one more may fail, but not all of them; situations, of which there may be only one in each kind, count
    together."""
    passes, of = course.pattern.settle
    kinds = [rate for some in around.values() for mode, rate in some.items() if mode not in ("told", "situation")]
    return all(passed * of >= passes * count for passed, count in _counted(tests)) and all(
        passed and (passed + 1) * of >= passes * count for passed, count in kinds
    )


def _counted(tests: Tests) -> list[tuple[int, int]]:
    return [rate for mode, rate in tests.items() if mode != "told"]


def tests_of(course: Course) -> Tests:
    """Counts of the most likely answers of the last round, by mode."""
    return _by_mode(course.tried)


def sampled_of(course: Course) -> Tests:
    """Counts of the sampled answers of the last round, by mode."""
    return _by_mode(course.tried, sampled=True)


def tests_around(course: Course) -> TestsAround:
    """Counts of the most likely answers of the last round, by kind of surrounding and mode."""
    return _around(course.tried)


def _around(tried: Sequence[Tried]) -> TestsAround:
    kinds = dict.fromkeys(str(one.surrounding) for one in tried)
    return {kind: _by_mode(one for one in tried if one.surrounding == kind) for kind in kinds}


def _by_mode(tried: Iterable[Tried], sampled: bool = False) -> Tests:
    found: Tests = {}
    for one in (one for one in tried if bool(one.sample) is sampled):
        passed, count = found.get(one.mode, (0, 0))
        found[one.mode] = (passed + one.passed, count + 1)
    return found


# Selects the tests of patterns that the quality guard repeats: held-out scenarios under texts that make the behaviour
# wrong.
#
# Practised and settled patterns are included: learning, also by their own practices, must not make the behaviour show
# where it would be wrong. Retired ones are not: the behaviour is no longer wanted.

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
