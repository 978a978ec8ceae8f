"""Chooses the next questions about the lesson under way, and evaluates its answers. Pure.

Greedy answers to all held-out wordings come first, since users see those. Only if all of them pass, bare, do sampled
answers show that this is not chance (`core.proof`).
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from apollod.core.facts.lessons.events import AskMode, Said, Tally, Worded
from apollod.core.facts.lessons.inputs import Ask
from apollod.core.facts.lessons.stages import Course, Stage, Tried
from apollod.core.facts.lessons.state import Lesson, LessonsState
from apollod.core.proof import TOLD_MIN, decided, needed
from apollod.core.settings import LessonSettings, Settings

ASKING = frozenset({Stage.BASELINE, Stage.TOLD, Stage.TESTING, Stage.AGAIN})
PROVING = frozenset({Stage.BASELINE, Stage.TESTING})
"""stages that show whether a lesson is known"""
AT_ONCE = 2
"""sampled answers to each wording requested at once: a lesson that is not known shows that in the first few"""
PRACTISED = 8
"""practice wordings of a round, in turn: many wordings teach more than repeats of a few, in the same time"""


def mode_of(stage: Stage) -> AskMode:
    """Mode in which wordings are asked in a stage."""
    return "told" if stage is Stage.TOLD else "bare"


def tries(answers: Sequence[Said]) -> list[Tried]:
    """Results of these answers: passed or not, greedy or not."""
    return [Tried(one.passed, one.seed is None) for one in answers]


def tally(tried: Sequence[Tried]) -> Tally:
    """Greedy answers to held-out wordings: (passed, count)."""
    greedy = [one.passed for one in tried if one.greedy]
    return sum(greedy), len(greedy)


def figures(lesson: Lesson, stage: Stage, found: Tally) -> tuple[dict[str, Tally], Tally | None]:
    """`before` and `after` of a lesson with the result of a stage."""
    before = {**lesson.before, mode_of(stage): found} if stage in (Stage.BASELINE, Stage.TOLD) else lesson.before
    return before, lesson.after if stage is Stage.TOLD else found


def described(tried: Sequence[Tried]) -> str:
    """The answers in words, such as `4 of 4 held-out wordings pass, and 9 of 16 answers sampled of them`."""
    (passed, of), sampled = tally(tried), _sampled(tried)
    more = f", and {sum(sampled)} of {len(sampled)} answers sampled of them" if sampled else ""
    return f"{passed} of {of} held-out wordings pass{more}"


def can_be_told(lesson: Lesson) -> bool:
    """True if the told model answered it before the first step."""
    passed, of = lesson.before.get("told", (0, 0))
    return of > 0 and passed >= TOLD_MIN * of


def practised_next(lesson: Lesson) -> list[int]:
    """Indices of the practice wordings of the next round."""
    count = len(lesson.worded.practice) if lesson.worded is not None else 0
    return [(lesson.practices + n) % count for n in range(min(PRACTISED, count))]


def proof_of(lesson: Lesson, course: Course) -> int:
    """Number of the sequential test of this round, under way or not begun yet. A round decided by greedy answers begins
    none, and spends none of the error."""
    return course.proof or lesson.proofs + 1


def learned_otherwise(own: LessonsState, lesson: Lesson) -> bool:
    """True if learned answers may outweigh the told one: that of a lesson which this one replaces, or those of lessons
    of its form, such as "The market is held on Monday" for every market."""
    return bool(lesson.not_these) or any(one.steps and one.id != lesson.id for one in own.of_form(lesson))


def outcome(
    own: LessonsState, lesson: Lesson, stage: Stage, proof: int, tried: Sequence[Tried], settings: Settings | None
) -> bool | None:
    """True if the stage is passed after these answers, False if it failed, None while more are needed. The told model
    need not pass if practices learn the given answer and the model may have learned another one."""
    held_out = len(lesson.worded.held_out) if lesson.worded is not None else 0
    passed, of = tally(tried)
    if of < held_out:
        return None
    if stage is Stage.TOLD:
        given = settings is not None and settings.lessons.practice == "given"
        return (given and learned_otherwise(own, lesson)) or passed >= TOLD_MIN * of
    if passed < of or stage is Stage.AGAIN:
        return passed == of
    return decided(_sampled(tried), proof, held_out)


def asks(lesson: Lesson, worded: Worded, course: Course) -> tuple[Ask, ...]:
    """The next questions, asked at the same time."""
    held = worded.held_out
    if not course.tried:
        return tuple(Ask(n, one.prompt, one.answer) for n, one in enumerate(held))
    sampled = _sampled(course.tried)
    left = needed(sampled, proof_of(lesson, course), len(held))
    more = range(len(sampled), len(sampled) + min(left, AT_ONCE * len(held)))
    first = seed_of(lesson.id, course.round)
    wordings = ((n % len(held), held[n % len(held)], first + n) for n in more)
    return tuple(Ask(n, one.prompt, one.answer, seed=seed) for n, one, seed in wordings)


def seed_of(lesson: str, round_: int) -> int:
    """First seed of a round; different for all rounds of a journal."""
    return (int(lesson[1:]) * 10_000 + round_) * 1_000


def _sampled(tried: Sequence[Tried]) -> list[bool]:
    return [one.passed for one in tried if not one.greedy]


def left(lesson: Lesson, settings: LessonSettings) -> int:
    """Steps that this course may still take."""
    return max(0, settings.steps - (lesson.steps - lesson.budget_from))


def spent(lesson: Lesson, drifted: float, settings: LessonSettings) -> str:
    """Reason to give up a lesson that is not known yet; empty: practice goes on. `drifted`: nats a token, in this
    course."""
    if not left(lesson, settings):
        return f"{settings.steps} steps were not enough ([lessons] steps = {settings.steps})"
    if settings.drift and drifted > settings.drift:
        return f"other answers moved by {drifted:.3f} nats a token ([lessons] drift = {settings.drift:g})"
    return ""


_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


class Distance(NamedTuple):
    """Seconds, or steps; the other one is 0."""

    seconds: int = 0
    steps: int = 0


@cache
def distance_of(text: str) -> Distance:
    """Parse a distance, such as `1h`, `30 d` or `200 steps`. Raises ValueError for anything else."""
    found = re.fullmatch(r"([1-9][0-9]{0,5}) ?(s|min|h|d|w|steps?)", text)
    if found is None:
        raise ValueError(f'{text!r} is no distance; write a number from 1 with s, min, h, d, w or steps, such as "1h"')
    number, unit = int(found[1]), found[2]
    return Distance(seconds=number * _SECONDS[unit]) if unit in _SECONDS else Distance(steps=number)


def nth(distances: Sequence[str], index: int) -> Distance | None:
    """The distance with this index; the last one beyond the end; None if there is none."""
    return distance_of(distances[min(index, len(distances) - 1)]) if distances else None


def longest_s(distances: Sequence[str]) -> int:
    """Longest wait of a lesson, in seconds."""
    return max((distance_of(text).seconds for text in distances), default=0)
