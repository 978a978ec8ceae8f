"""Effects of lessons: each is repeated until its answer is recorded, and runs once at a time."""

from typing import ClassVar

import msgspec

from apollod.core.facts.intake.events import Given
from apollod.core.facts.lessons.events import AskMode, Wording
from apollod.core.facts.lessons.stages import Stage
from apollod.core.kernel.effect import Effect
from apollod.core.settings import Practice


class Ask(msgspec.Struct, frozen=True):
    """One question. `wording`, `seed`: see `Said`; `prompt`: the message; `answer`: text that a right answer
    contains."""

    wording: int
    prompt: str
    answer: str
    seed: int | None = None


class WordLesson(Effect, frozen=True):
    """Find wordings of a lesson; answered by `LessonWorded` or `LessonCallFailed`."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("lesson", "attempt")
    lesson: str
    attempt: int
    given: Given
    stage: Stage = Stage.WORDING


class AskLesson(Effect, frozen=True):
    """Ask the served model all questions at the same time; answered by `LessonAsked` or `LessonCallFailed`. `told`: the
    system message, empty in mode bare; `made`: number of earlier answers in this stage and round; `not_these`: answers
    that are wrong now, of replaced lessons: an answer that contains one of them fails."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("lesson", "stage", "round", "made", "attempt")
    lesson: str
    attempt: int
    stage: Stage
    mode: AskMode
    round: int
    made: int
    told: str
    asks: tuple[Ask, ...]
    not_these: tuple[str, ...] = ()


class PrepareLesson(Effect, frozen=True):
    """Make a conversation to be learned of one practice wording; answered by `LessonPrepared` or `LessonCallFailed`.
    `number`: of the practice, from 1 in each lesson; `practice`: target of the practice, see `LessonSettings`."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("lesson", "number", "attempt")
    lesson: str
    attempt: int
    number: int
    told: str
    wording: Wording
    practice: Practice
    not_these: tuple[str, ...] = ()
    stage: Stage = Stage.PREPARING
