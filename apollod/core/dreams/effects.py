"""What the world is asked to do for a dream: each until its answer is recorded, and once at a time."""

from typing import ClassVar

from apollod.core.dreams.events import Mode, Purpose
from apollod.core.dreams.scenario import Turn
from apollod.core.kernel.effect import Effect
from apollod.core.settings import PatternSettings

Scenario = tuple[Turn, ...]


class ImagineScenario(Effect, frozen=True):
    """Answered by `ScenarioImagined` or `DreamCallFailed`. `unlike`: scenarios that it should not repeat, never one
    that is kept apart; `variation_of`: the one that was practised; `last_seeds`: ids of those that were used last."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("dream", "attempt")
    dream: str
    attempt: int
    pattern: PatternSettings
    purpose: Purpose
    number: int
    unlike: tuple[Scenario, ...] = ()
    variation_of: Scenario = ()
    last_seeds: tuple[str, ...] = ()


class AnswerScenario(Effect, frozen=True):
    """Answered by `ScenarioAnswered` or `DreamCallFailed`. `told`: the system message."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("dream", "attempt")
    dream: str
    attempt: int
    scenario: Scenario
    told: str


class JudgeDream(Effect, frozen=True):
    """Answered by `DreamVerdict` or `DreamCallFailed`. `expected`: the instruction that the answer is judged by;
    `answer`: given by the model, or the better one that was written."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("dream", "attempt", "stage")
    dream: str
    attempt: int
    stage: str
    pattern: PatternSettings
    mode: Mode
    expected: str
    scenario: Scenario
    answer: str


class TestScenario(Effect, frozen=True):
    """Answer and judge, without learning of it; answered by `ScenarioTested` or `DreamCallFailed`. `told`: the system
    message, empty in mode bare; `expected`: see `JudgeDream`: the judge does not see in which mode it was."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("dream", "round", "mode", "contrast", "attempt")
    dream: str
    round: str
    mode: Mode
    contrast: str
    attempt: int
    pattern: PatternSettings
    expected: str
    told: str
    scenario: Scenario


class CancelDream(Effect, frozen=True):
    """Abort the call that is under way for a dream, if there is one; nothing answers it, it is made again later."""
