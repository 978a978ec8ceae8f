"""Effects: the calls of a dream, each repeated until its answer is recorded, one at a time."""

from collections.abc import Mapping
from typing import ClassVar

from apollod.core.dreams.events import LEARNED_FROM, Mode, Purpose
from apollod.core.dreams.scenario import Surfaced, Turn
from apollod.core.kernel.effect import Effect
from apollod.core.settings import PatternSettings
from apollod.core.surroundings import NOTHING, Drawn, Surrounding, SurroundingKind, SurroundingUse

Scenario = tuple[Turn, ...]


class ImagineScenario(Effect, frozen=True):
    """Answered by `ScenarioImagined` or `DreamCallFailed`. `unlike`: scenarios that it should not repeat, of a practice
    never one that tests are made with; `variation_of`: the one that was practised; `last_seeds`: ids of those that were
    used last, `surfaced`: of all, how often and what they taught;
    `surrounding`: which one is to stand before it, and one of another of `kinds` where there is none, or no room for it
    and for what is told: `beside`, and the instruction."""

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
        """For what the surrounding may be used."""
        return "practice" if self.purpose in LEARNED_FROM else "tests"


class AnswerScenario(Effect, frozen=True):
    """Answered by `ScenarioAnswered` or `DreamCallFailed`. `told`: what is said in the system message: the
    instruction, after those of other patterns that were practised."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("dream", "attempt")
    dream: str
    attempt: int
    scenario: Scenario
    told: str
    surrounding: Surrounding = NOTHING


class JudgeDream(Effect, frozen=True):
    """Answered by `DreamVerdict` or `DreamCallFailed`. `expected`: the instruction that the answer is judged by;
    `answer`: given by the model, or the better one that was written; `told`: all that the model was told then."""

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
    """Answer and judge, without learning of it; answered by `ScenarioTested` or `DreamCallFailed`. `told`: the
    instruction in the system message, empty in mode bare; `expected`: see `JudgeDream`: the judge does not see in which
    mode it was; `sample`: 0: the most likely answer; n: the nth that is sampled."""

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
    """Abort the call that is under way for a dream, if there is one; nothing answers it, it is made again later."""
