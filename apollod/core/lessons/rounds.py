"""Choose what is asked next of the lesson under way, and judge its answers. Pure.

The greedy answers to all held-out wordings come first: what people see. Only where all of them pass, bare, is it shown
by sampled answers that this is no chance (`core.proof`).
"""

from collections.abc import Sequence

from apollod.core.lessons.effects import Ask
from apollod.core.lessons.events import AskMode, Said, Tally
from apollod.core.lessons.open_course import Course, Tried
from apollod.core.lessons.stages import Stage
from apollod.core.lessons.state import Lesson, LessonsState
from apollod.core.lessons.wording import Worded
from apollod.core.proof import TOLD_MIN, decided, needed
from apollod.core.settings import Settings

ASKING = frozenset({Stage.BASELINE, Stage.TOLD, Stage.TESTING, Stage.AGAIN})
PROVING = frozenset({Stage.BASELINE, Stage.TESTING})
"""stages that show whether a lesson is known"""
AT_ONCE = 2
"""sampled answers to each wording that are asked for at once: a lesson that is not known shows that in the first few"""
PRACTISED = 8
"""practice wordings of a round, in turn: many ways to ask teach more than the same few again, for no more time"""


def mode_of(stage: Stage) -> AskMode:
    """How wordings are asked in a stage."""
    return "told" if stage is Stage.TOLD else "bare"


def tries(answers: Sequence[Said]) -> list[Tried]:
    """The part of these answers that counts: whether each passed, and whether it was greedy."""
    return [Tried(one.passed, one.seed is None) for one in answers]


def tally(tried: Sequence[Tried]) -> Tally:
    """Greedy answers to held-out wordings: (passed, of how many)."""
    greedy = [one.passed for one in tried if one.greedy]
    return sum(greedy), len(greedy)


def figures(lesson: Lesson, stage: Stage, found: Tally) -> tuple[dict[str, Tally], Tally | None]:
    """`before` and `after` of a lesson once this was found in a stage."""
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
    """Indices of the practice wordings whose turn it is in the next round."""
    count = len(lesson.worded.practice) if lesson.worded is not None else 0
    return [(lesson.practices + n) % count for n in range(min(PRACTISED, count))]


def proof_of(lesson: Lesson, course: Course) -> int:
    """The number of the sequential test of this round, under way or not begun yet. A round that greedy answers end
    begins none, and none of the error is spent on it."""
    return course.proof or lesson.proofs + 1


def learned_otherwise(own: LessonsState, lesson: Lesson) -> bool:
    """True if what the model learned may speak louder than what it is told: the answer of a lesson that this one
    replaces, or those of lessons of its form, "The market is held on Monday" of every market."""
    return bool(lesson.not_these) or any(one.steps and one.id != lesson.id for one in own.of_form(lesson))


def outcome(
    own: LessonsState, lesson: Lesson, stage: Stage, proof: int, tried: Sequence[Tried], settings: Settings | None
) -> bool | None:
    """True if the stage is passed after these answers, False if it failed, None while more are wanted. No told model is
    needed where the given answer is learned and the model may have learned another one."""
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
    """The answers that are asked for next, side by side."""
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
    """The first seed of a round; no two rounds of a journal share one."""
    return (int(lesson[1:]) * 10_000 + round_) * 1_000


def _sampled(tried: Sequence[Tried]) -> list[bool]:
    return [one.passed for one in tried if not one.greedy]
