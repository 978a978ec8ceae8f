"""Scores: how much an answer depends on stripped text. Events, inputs, effects and state."""

from typing import ClassVar

import msgspec

from apollod.core.kernel.effect import Effect
from apollod.core.kernel.event import ExampleEvent
from apollod.core.kernel.input import Input
from apollod.core.schedules import NO_FAILURE, Retry

# --- events ----------------------------------------------------------------------------------------------------------


class ScoreRequested(ExampleEvent, frozen=True):
    """Intent: the engine is asked for the log-probabilities of an example's answer; `attempt` counts from 1. `after`:
    the step that learned it, see `ExampleScored`."""

    kind: ClassVar[str] = "score.requested"
    attempt: int = 1
    after: int = 0


class ExampleScored(ExampleEvent, frozen=True):
    """Mean log-probability (natural logarithm, a token) of the last learned answer of an example by the served weights,
    with and without the stripped text. `divergence`: the first minus the second; the larger, the more the answer
    depends on the stripped text.

    `tokens`: of the answer, with the one that ends it. `weights_version`: version served at the second measurement; -1:
    not known. `alternate`: the model's answer without the text, if asked. `after`: for the second score, the step that
    learned the example; 0: the first score, before learning.
    """

    kind: ClassVar[str] = "example.scored"
    with_context: float
    without_context: float
    divergence: float
    tokens: int
    weights_version: int
    seconds: float = 0.0
    alternate: str = ""
    after: int = 0


class ScoreFailed(ExampleEvent, frozen=True):
    """The example could not be scored. `given_up`: not tried again; else later. `in_a_row`: consecutive times that the
    engine gave no answer, over all examples; 0: this example cannot be scored."""

    kind: ClassVar[str] = "score.failed"
    reason: str
    attempts: int
    given_up: bool
    in_a_row: int = 0


# --- inputs ----------------------------------------------------------------------------------------------------------


class ExampleScoreDone(Input, frozen=True):
    """Fields as in `ExampleScored`. `error`: why there is no score; `retryable`: a later attempt may succeed."""

    example: str
    with_context: float = 0.0
    without_context: float = 0.0
    tokens: int = 0
    weights_version: int = -1
    seconds: float = 0.0
    alternate: str = ""
    error: str = ""
    retryable: bool = False
    after: int = 0


# --- effects ---------------------------------------------------------------------------------------------------------


class ScoreExample(Effect, frozen=True):
    """Have the engine score the last learned answer of an example, with and without the stripped text."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("example", "after")
    example: str
    after: int = 0
    """the step that learned it, see `ExampleScored`"""


# --- state -----------------------------------------------------------------------------------------------------------


class ScoringState(msgspec.Struct):
    """Examples by id."""

    stripped: dict[str, None] = {}
    """examples with stripped text and without a score"""
    candidates: dict[str, None] = {}
    """those of them to be scored, by the present settings"""
    scored: dict[str, None] = {}
    """examples with a score that are not learned yet"""
    learned: dict[str, int] = {}
    """learned examples to be scored once more: the step that learned each"""
    twice: dict[str, tuple[int, int]] = {}
    """examples last scored once more: the step that learned each, and the scoring weights version"""
    open: str = ""
    """example of the open question"""
    open_after: int = 0
    """the step that learned it; 0: first score"""
    failed: dict[str, int] = {}
    """attempts that came to nothing, of examples that are tried again"""
    retry: Retry = NO_FAILURE
    """over all examples"""
