"""Events: dependence of answers on stripped text."""

from typing import ClassVar

from apollod.core.kernel.event import Event


class ScoreRequested(Event, frozen=True):
    """Intent: the engine is asked for the log-probabilities of an example's answer; `attempt` counts from 1. `after`:
    the step that learned it, see `ExampleScored`."""

    kind: ClassVar[str] = "score.requested"
    example: str
    attempt: int = 1
    after: int = 0

    def key(self) -> str:
        return self.example


class ExampleScored(Event, frozen=True):
    """Mean log-probability (natural logarithm, a token) of the last learned answer of an example by the served weights,
    with and without the stripped text. `divergence`: the first minus the second; the larger, the more the answer
    depends on the stripped text.

    `tokens`: of the answer, with the one that ends it. `weights_version`: version served at the second measurement; -1:
    not known. `alternate`: the model's answer without the text, if asked. `after`: for the second score, the step that
    learned the example; 0: the first score, before learning.
    """

    kind: ClassVar[str] = "example.scored"
    example: str
    with_context: float
    without_context: float
    divergence: float
    tokens: int
    weights_version: int
    seconds: float = 0.0
    alternate: str = ""
    after: int = 0

    def key(self) -> str:
        return self.example


class ScoreFailed(Event, frozen=True):
    """The example could not be scored. `given_up`: not tried again; else later. `in_a_row`: consecutive times that the
    engine gave no answer, over all examples; 0: this example cannot be scored."""

    kind: ClassVar[str] = "score.failed"
    example: str
    reason: str
    attempts: int
    given_up: bool
    in_a_row: int = 0

    def key(self) -> str:
        return self.example
