"""What is asked next of the lesson under way, and what its answers decide. Pure.

The greedy answers to all held-out wordings come first: what people see. Only where all of them pass, bare, is it shown
by sampled answers that this is no chance (`core.lessons.proof`). After practice the greedy answers to the practice
wordings tell which of them are practised again; nothing is ever decided by them.
"""

from collections.abc import Sequence

from apollod.core.lessons.effects import Ask
from apollod.core.lessons.events import AskMode, Said, Tally
from apollod.core.lessons.open_course import Course, Tried
from apollod.core.lessons.proof import decided, needed
from apollod.core.lessons.stages import Stage
from apollod.core.lessons.state import Lesson
from apollod.core.lessons.wording import Worded

ASKING = frozenset({Stage.BASELINE, Stage.TOLD, Stage.TESTING, Stage.AGAIN})
PROVING = frozenset({Stage.BASELINE, Stage.TESTING})
"""stages that show whether a lesson is known"""
TOLD_MIN = 0.5
"""share of held-out wordings that the told model has to answer, for there to be something to learn from it"""


def mode_of(stage: Stage) -> AskMode:
    """How wordings are asked in a stage."""
    return "told" if stage is Stage.TOLD else "bare"


def tries(answers: Sequence[Said]) -> list[Tried]:
    """What counts of these answers."""
    return [Tried(one.wording, one.passed, one.practice, one.seed is None) for one in answers]


def tally(tried: Sequence[Tried]) -> Tally:
    """Greedy answers to held-out wordings: (passed, of how many)."""
    greedy = [one.passed for one in tried if one.greedy and not one.practice]
    return sum(greedy), len(greedy)


def figures(lesson: Lesson, stage: Stage, found: Tally) -> tuple[dict[str, Tally], Tally | None]:
    """`before` and `after` of a lesson once this was found in a stage."""
    before = {**lesson.before, mode_of(stage): found} if stage in (Stage.BASELINE, Stage.TOLD) else lesson.before
    return before, lesson.after if stage is Stage.TOLD else found


def described(tried: Sequence[Tried]) -> str:
    """Such as `4 of 4 held-out wordings pass, and 9 of 16 answers sampled of them`."""
    (passed, of), sampled = tally(tried), _sampled(tried)
    more = f", and {sum(sampled)} of {len(sampled)} answers sampled of them" if sampled else ""
    return f"{passed} of {of} held-out wordings pass{more}"


def outcome(stage: Stage, round_: int, tried: Sequence[Tried], held_out: int) -> bool | None:
    """True if the stage is passed after these answers, False if it failed, None while more are wanted. `held_out`: how
    many wordings there are."""
    passed, of = tally(tried)
    if of < held_out:
        return None
    if stage is Stage.TOLD:
        return passed >= TOLD_MIN * of
    if passed < of or stage is Stage.AGAIN:
        return passed == of
    return decided(_sampled(tried), round_, held_out)


def asks(lesson: Lesson, worded: Worded, course: Course) -> tuple[Ask, ...]:
    """What is asked next, side by side."""
    held = worded.held_out
    if not course.tried:
        greedy = [Ask(n, one.prompt, one.answer) for n, one in enumerate(held)]
        if course.stage is Stage.TESTING:
            greedy += [Ask(n, one.prompt, one.answer, practice=True) for n, one in enumerate(worded.practice)]
        return tuple(greedy)
    sampled = _sampled(course.tried)
    more = range(len(sampled), len(sampled) + needed(sampled, course.round, len(held)))
    first = seed_of(lesson.id, course.round)
    wordings = ((n % len(held), held[n % len(held)], first + n) for n in more)
    return tuple(Ask(n, one.prompt, one.answer, seed=seed) for n, one, seed in wordings)


def seed_of(lesson: str, round_: int) -> int:
    """The first seed of a round; no two rounds of a journal share one."""
    return (int(lesson[1:]) * 10_000 + round_) * 1_000


def to_practise(tried: Sequence[Tried], practice: int) -> list[int]:
    """Practice wordings that failed; all of them where none did, or none was asked."""
    failed = [one.wording for one in tried if one.practice and not one.passed]
    return failed or list(range(practice))


def _sampled(tried: Sequence[Tried]) -> list[bool]:
    return [one.passed for one in tried if not one.greedy]
