"""Effects: the calls of a dream, each repeated until its answer is recorded, one at a time. Inputs: their answers,
requests of people, users coming to and leaving the engine."""

from collections.abc import Mapping
from typing import ClassVar

from apollod.core.facts.dreams.events import LEARNED_FROM, DreamImagined, DreamJudged, Mode, Purpose
from apollod.core.facts.dreams.scenario import Surfaced, Turn
from apollod.core.facts.intake.inputs import Line
from apollod.core.facts.judging.events import JudgeConfigured
from apollod.core.kernel.effect import Effect
from apollod.core.kernel.input import Input
from apollod.core.kernel.reasons import Cause
from apollod.core.settings import PatternSettings
from apollod.core.surroundings import NOTHING, Drawn, Surrounding, SurroundingKind, SurroundingUse

Scenario = tuple[Turn, ...]


class ImagineScenario(Effect, frozen=True):
    """Answered by `ScenarioImagined` or `DreamCallFailed`. `unlike`: scenarios that it should not repeat, for a
    practice never tested ones; `variation_of`: the practised scenario; `last_seeds`: ids of the seeds used last,
    `surfaced`: use and results of all seeds; `surrounding`: the wanted one, replaced by one of another of `kinds` if
    there is none, or no room for it and the told text: `beside` and the instruction."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("dream", "attempt")
    dream: str
    attempt: int
    pattern: PatternSettings
    purpose: Purpose
    number: int
    unlike: tuple[Scenario, ...] = ()
    variation_of: Scenario = ()
    last_seeds: tuple[str, ...] = ()
    surfaced: Mapping[str, Surfaced] = {}
    surrounding: Drawn = Drawn()
    kinds: tuple[SurroundingKind, ...] = ("none",)
    beside: str = ""

    @property
    def use(self) -> SurroundingUse:
        """The use for which the surrounding is drawn."""
        return "practice" if self.purpose in LEARNED_FROM else "tests"


class AnswerScenario(Effect, frozen=True):
    """Answered by `DreamAnswered` or `DreamCallFailed`. `told`: text for the system message: instructions of other
    practised patterns, then that of this one."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("dream", "attempt")
    dream: str
    attempt: int
    scenario: Scenario
    told: str
    surrounding: Surrounding = NOTHING


class JudgeDream(Effect, frozen=True):
    """Answered by `DreamVerdict` or `DreamCallFailed`. `expected`: the instruction that the answer is judged by;
    `answer`: given by the model, or the better one that was written; `told`: text that the model was told then."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("dream", "attempt", "stage")
    dream: str
    attempt: int
    stage: str
    pattern: PatternSettings
    mode: Mode
    expected: str
    scenario: Scenario
    answer: str
    told: str
    surrounding: Surrounding = NOTHING


class TestScenario(Effect, frozen=True):
    """Answer and judge without learning; answered by `DreamTested` or `DreamCallFailed`. `told`: the instruction in
    the system message, empty in mode bare; `expected`: see `JudgeDream`; the judge does not see the mode; `sample`: 0:
    the most likely answer; n: the nth sampled one."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("dream", "round", "mode", "contrast", "sample", "attempt")
    dream: str
    round: str
    mode: Mode
    contrast: str
    attempt: int
    pattern: PatternSettings
    expected: str
    told: str
    scenario: Scenario
    surrounding: Surrounding = NOTHING
    sample: int = 0


class CancelDream(Effect, frozen=True):
    """Abort the call that is under way for a dream, if any; it has no answer, and the call is made again later."""


class ScenarioImagined(Input, frozen=True):
    """Answers `ImagineScenario`. `imagined`: the event, if the scenario is accepted; `leak`, `echo`: why it cannot be
    learned from; empty: it can."""

    imagined: DreamImagined
    leak: str = ""
    echo: str = ""


class DreamVerdict(Input, frozen=True):
    """Answers `JudgeDream`. `judged`: the event, with the better answer if one was written; `line`: the record to learn
    if it is good; `known`: the journal holds it already; `teacher`: see `ExampleAccepted`."""

    judged: DreamJudged
    stage: str
    line: Line | None = None
    known: bool = False
    teacher: str = ""


class DreamCallFailed(Input, frozen=True):
    """A call failed, or its answer is unusable. `retry_after_s`: wait that the endpoint requests; `case`: mode and
    sample of a test."""

    dream: str
    stage: str
    attempt: int
    cause: Cause
    reason: str
    retry_after_s: float = 0.0
    tokens: int = 0
    case: tuple[Mode, int] = ("bare", 0)


class EngineUse(Input, frozen=True):
    """Others began to use the engine, or have not used it for `idle_s`. `reason`: why its use is not known."""

    users: bool
    reason: str = ""


class PatternWanted(Input, frozen=True):
    """A user adds a pattern, or changes one."""

    pattern: PatternSettings
    by: str
    judge: JudgeConfigured | None = None
    """the judge to configure if there is none yet"""


class PatternUnwanted(Input, frozen=True):
    """A person retires a pattern. `forget`: examples of its dreams are taken out of the weights as well."""

    pattern: str
    by: str
    forget: bool = False
