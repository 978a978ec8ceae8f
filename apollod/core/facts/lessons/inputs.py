"""Inputs of lessons: users give, correct and forget them, and calls for them are answered."""

import msgspec

from apollod.core.facts.intake.events import Given
from apollod.core.facts.intake.inputs import Line
from apollod.core.facts.lessons.events import AskMode, Said, Worded
from apollod.core.facts.lessons.stages import Stage
from apollod.core.kernel.input import Input
from apollod.core.kernel.reasons import Cause


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
