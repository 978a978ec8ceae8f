"""Effects of lessons: each is repeated until its answer is recorded, and runs once at a time. Inputs: users give,
correct and forget lessons, and calls for them are answered."""

from typing import ClassVar

import msgspec

from apollod.core.facts.intake.events import Given
from apollod.core.facts.intake.inputs import Line
from apollod.core.facts.lessons.events import AskMode, Said, Worded, Wording
from apollod.core.facts.lessons.stages import Stage
from apollod.core.kernel.effect import Effect
from apollod.core.kernel.input import Input
from apollod.core.kernel.reasons import Cause
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


class LessonWanted(Input, frozen=True):
    """A person or a part of the daemon gives a lesson; answered by the event `lesson.given`, which has its id. See
    `LessonGiven`."""

    given: Given
    by: str
    replaces: str = ""


class Contradicted(msgspec.Struct, frozen=True):
    """An example that contradicts a lesson's answer. `answer`: see `ExampleReplaced`."""

    example: str
    answer: str = ""


class LessonWorded(Input, frozen=True):
    """Answers `WordLesson`. See the event. `contradicted`: examples that were accepted before the lesson was given;
    `replaces`: ids of older lessons on its subject that contradict it."""

    lesson: str
    told: str
    worded: Worded
    model: str = ""
    tokens: int = 0
    seconds: float = 0.0
    contradicted: tuple[Contradicted, ...] = ()
    replaces: tuple[str, ...] = ()


class LessonAsked(Input, frozen=True):
    """Answers `AskLesson`, with its `stage`, `round` and `made`; `answers`: one for each of its asks, in their
    order."""

    lesson: str
    stage: Stage
    mode: AskMode
    round: int
    made: int
    answers: tuple[Said, ...]
    weights_version: int | None = None
    tokens: int = 0
    seconds: float = 0.0


class LessonPrepared(Input, frozen=True):
    """Answers `PrepareLesson`. `line`: the conversation to learn, with a `reason` if it cannot be; `teacher`: see
    `ExampleAccepted`."""

    lesson: str
    number: int
    line: Line
    teacher: str = ""
    tokens: int = 0
    seconds: float = 0.0


class LessonCallFailed(Input, frozen=True):
    """The call of this `attempt` failed, or its answer is unusable. `retry_after_s`: wait that the endpoint
    requests."""

    lesson: str
    stage: Stage
    attempt: int
    cause: Cause
    reason: str
    retry_after_s: float = 0.0
    tokens: int = 0


class LessonUnwanted(Input, frozen=True):
    """A person wants a lesson forgotten: it is given up, and what it trained is taken out of the weights."""

    lesson: str
    by: str
