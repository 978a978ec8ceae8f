"""Decides the next move of one pattern. Pure: a function of its progress.

First held-out scenarios; then a baseline on them, before anything is learned: a behaviour shown untold is settled
without a step, one that is not shown more often when told is given up. Then practices, each followed by a test on a new
scenario; when enough of those pass, a final round over the held-out scenarios, which has to keep an error bound
(`core.proof`). A settled pattern is tested again after each other one that settles. Behaviours taught by a bootstrap of
logs are tested in such a round as well, with or without practices.
"""

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

from apollod.core.facts.dreams.events import Mode, Purpose
from apollod.core.facts.dreams.held_out_rounds import Case, enough, not_followed, untried
from apollod.core.facts.dreams.state import Course, DreamsState, Tests
from apollod.core.proof import TOLD_MIN
from apollod.core.settings import DreamSettings
from apollod.core.surroundings import SURROUNDING_KINDS, Drawn, SurroundingKind, drawn

CONTRASTS_FIRST = 8
"""good answers under each contrast text, before the behaviour is practised: two in each kind of surrounding"""
SHOWN_MAX = 6
"""final rounds in a row in which the behaviour showed every time under a held-out contrast text, after which the
pattern is given up: such a text was seen to pass in none of 13 rounds, while all practised ones passed"""
MISSES_MAX = 10
"""dreams in a row that end early, after which a pattern is given up"""
TURN = 40
"""practices of one pattern before another one has its turn; with fewer, each undoes what the other began to learn"""


class Imagine(NamedTuple):
    """Begin a new dream."""

    purpose: Purpose
    mode: Mode = "bare"
    contrast: str = ""
    of: str = ""


class Settle(NamedTuple):
    """The behaviour is shown: before any practice, or by a passed final round."""


class Unsettle(NamedTuple):
    """A test of a settled behaviour failed."""

    reason: str


Move = Imagine | Case | Settle | Unsettle | None


def rests(course: Course, settlings: int) -> bool:
    """True if the pattern needs nothing until another one settles, or a user acts."""
    if course.phase == "settled":
        return course.rechecked >= settlings and not (course.taken_back or course.failed or course.due)
    return course.phase == "retired"


def look_over(own: DreamsState) -> None:
    """Update the facts about all patterns together, after each event that may change them."""
    courses = own.courses.values()
    own.at_rest = all(rests(one, own.settlings) for one in courses)
    own.judged = any(one.phase != "retired" and not one.pattern.check.by_code for one in courses)


def next_move(course: Course, own: DreamsState) -> Move:
    """The next move; None: none now."""
    settlings = own.settlings
    if course.phase == "retired":
        return None
    if course.phase == "settled":
        return _recheck(course, settlings)
    if len(course.held) < course.pattern.held_out:
        return Imagine("held-out")
    if not course.baseline:
        if len(course.situations) < course.pattern.situations and not course.no_situations:
            return Imagine("situation")
        return _first(untried(course, "baseline"))
    if course.due:
        return _first(untried(course, course.due)) or Settle()
    if course.owed:
        return Imagine("variation", contrast=_tested_next(course), of=course.owed)
    if measured_first(course):
        return _first(untried(course, "shown")) or Settle()
    if own.holds and (contrast := unheld_contrast(course)):
        return Imagine("contrast", "contrast", contrast)
    if ready(course):
        name = f"final {course.practices}"
        return _first(untried(course, name)) or (_practice(course, own.holds) if course.failed else Settle())
    return _practice(course, own.holds)


def unheld_contrast(course: Course) -> str:
    """The contrast text with the fewest held good answers, while there are too few; empty: enough. These answers come
    before the practices that might make the behaviour show under the texts, and are held beside them."""
    text = min(course.pattern.contrasts, key=lambda one: course.contrasted.get(one, 0))
    return text if course.contrasted.get(text, 0) < CONTRASTS_FIRST else ""


def open_cases(course: Course, own: DreamsState) -> list[Case]:
    """Tests that may be made now, independent of each other's results. Empty if no test comes next."""
    move = next_move(course, own)
    return untried(course, move.round) if isinstance(move, Case) else []


def _recheck(course: Course, settlings: int) -> Move:
    if course.due:
        return _first(untried(course, course.due))
    if course.rechecked < settlings:
        return _first(untried(course, f"recheck {settlings}"))
    if course.failed:
        return Unsettle(f"of its held-out scenarios {told(course.final)} pass now")
    return None


def _first(cases: Sequence[Case]) -> Case | None:
    return cases[0] if cases else None


def measured_first(course: Course) -> bool:
    """True until it is decided whether the behaviour is shown before any practice."""
    return not course.baseline or (not course.taught and not course.failed and _bare_enough(course))


def _bare_enough(course: Course) -> bool:
    """True if the behaviour is shown before any practice as often as required at the end."""
    bare = {"bare": course.baseline["bare"]}
    around = {kind: {"bare": some["bare"]} for kind, some in course.baseline_around.items() if "bare" in some}
    return enough(course, bare, around)


def nothing_to_practise(course: Course) -> str:
    """Reason why practice cannot teach it: the told model does not do it, or not more often than the untold one, or
    does it where it would be wrong as well; empty: practice can."""
    passed, of = course.baseline.get("told", (0, 0))
    of -= sum(course.baseline_around[kind]["told"][1] for kind in not_followed(course))
    untold, _ = course.baseline.get("bare", (0, 0))
    away, texts = course.baseline.get("contrast", (0, 0))
    if course.practices or course.due or not course.baseline:
        return ""
    instead = "Say it in other words"
    if passed < TOLD_MIN * of:
        what = f"the model does not do it even when it is told: {passed} of {of} held-out scenarios pass then"
    elif course.bootstraps or _bare_enough(course):
        return ""
    elif passed <= untold:
        what = f"telling it makes no difference: {passed} of {of} held-out scenarios pass then, {untold} untold"
    elif away < TOLD_MIN * texts:
        what = f"the model does it under texts that make it wrong, too: {away} of {texts} pass in contrast"
        instead = "Give texts that it obeys (`contrast`)"
    else:
        return ""
    unmoved = "No practice was made" if course.bootstraps else "Nothing was trained"
    return f"{what}. {unmoved}. {instead}, or look at the check: `apollod ctl pattern show` has the answers"


def ready(course: Course) -> bool:
    """True if enough of the last new scenarios passed, bare and in contrast, for a final round."""
    passes, of = course.pattern.settle
    bare = course.bare[-of:]
    return len(bare) == of and sum(bare) >= passes and not weak_contrasts(course)


def weak_contrasts(course: Course) -> list[str]:
    """Contrast texts under which the behaviour showed too often lately, the worst first."""
    passes, of = course.pattern.settle
    worst = list[tuple[float, str]]()
    for text in course.pattern.contrasts:
        seen = [passed for said, passed in course.contrast if said == text][-of:]
        share = sum(seen) / len(seen) if seen else (0.0 if text in course.weak else 1.0)
        if share * of < passes:
            worst.append((share, text))
    return [text for _, text in sorted(worst)]


def _practice(course: Course, holds: bool) -> Imagine:
    """The next practice: bare, unless the behaviour shows under contrast texts; both in turns if both are to be
    learned, or if bare practices hold the answers in contrast."""
    passes, of = course.pattern.settle
    weak, bare = weak_contrasts(course), course.bare[-of:]
    held = len(bare) == of and sum(bare) >= passes
    turn = course.practices + course.misses
    if weak and ((held and not holds) or turn % 2):
        return Imagine("practice", "contrast", weak[turn // 2 % len(weak)])
    return Imagine("practice")


def kinds_of(course: Course, settings: DreamSettings) -> tuple[SurroundingKind, ...]:
    """The kinds of surrounding in which it is practised: those of its settings without those in which the instruction
    is not followed."""
    kinds, left_out = settings.surroundings_of(course.pattern), not_followed(course)
    return tuple(kind for kind in kinds if kind not in left_out) or kinds


def surrounding_of(course: Course, move: Imagine, kinds: Sequence[SurroundingKind]) -> Drawn:
    """The surrounding of a dream: kinds take turns, separately for held-out scenarios, variations and practices, and
    meet each contrast text; if every second practice is in contrast, each kind comes twice in a row."""
    contrasts = len(course.pattern.contrasts)
    match move.purpose:
        case "held-out":
            return drawn(kinds, len(course.held), len(course.pattern.tested_contrasts))
        case "contrast":
            return drawn(kinds, sum(course.contrasted.values()) + course.misses, contrasts)
        case "situation":
            return drawn(kinds, len(course.situations))
        case "variation":
            return drawn(kinds, course.practices, contrasts)
        case "practice":
            turn, weak = course.practices + course.misses, weak_contrasts(course)
            return drawn(kinds, turn // 2, len(weak)) if weak else drawn(kinds, turn)


def _tested_next(course: Course) -> str:
    """The contrast text with which a variation is tested as well: a weak one, as often in a row as there are kinds of
    surrounding, else each in turn. A text that failed once is weak until enough of its tests pass; with twelve others
    in turn that took a hundred practices, which moved other answers."""
    weak, contrasts = weak_contrasts(course), course.pattern.contrasts
    if weak:
        return weak[course.practices // len(SURROUNDING_KINDS) % len(weak)]
    return contrasts[course.practices % len(contrasts)]


def told(tests: Tests) -> str:
    """Counts such as `9 of 10 bare and 8 of 10 contrast`."""
    return " and ".join(f"{passed} of {count} {mode}" for mode, (passed, count) in tests.items())


def spent(course: Course) -> str:
    """Reason to give up a pattern because of its limits; empty: none."""
    budget, (practices, tokens, days) = course.pattern, of_budget(course)
    if course.misses >= MISSES_MAX:
        return f"the last {course.misses} dreams ended early, the last one because: {course.missed}"
    if texts := [f'"{text}"' for text, rounds in course.shown_under.items() if rounds >= SHOWN_MAX]:
        return (
            f"it shows where it would be wrong, under {' and '.join(texts)}, in {SHOWN_MAX} final rounds in a row. No "
            "practice has that text, and practices of the others do not change it. Give more texts like it (`contrast`)"
        )
    if budget.dreams and practices >= budget.dreams:
        return f"{practices} practices were not enough (dreams = {budget.dreams})"
    if budget.tokens and tokens >= budget.tokens:
        return f"{tokens} tokens were not enough (tokens = {budget.tokens})"
    if budget.days and days > ceil(budget.days):
        return f"{days - 1} days on which it was dreamt of were not enough (days = {budget.days:g})"
    return ""


def of_budget(course: Course) -> tuple[int, int, int]:
    """Practices, tokens and days that count against its budget: since it was added or last unsettled."""
    practices, tokens, days = course.before
    return course.practices - practices, course.tokens - tokens, course.days - days
