"""Facts: what an answer owes to text that was stripped."""

from typing import ClassVar

from apollod.core.kernel.event import Event


class ScoreRequested(Event, frozen=True):
    """Intent: the engine is asked for the log-probabilities of an example's answer; the `attempt`-th time. `after`: the
    step that learned it, see `ExampleScored`."""

    kind: ClassVar[str] = "score.requested"
    example: str
    attempt: int = 1
    after: int = 0

    def key(self) -> str:
        return self.example


class ExampleScored(Event, frozen=True):
    """Mean log-probability (natural logarithm, a token) of the last learned answer of an example, as the served weights
    have it after the text that was stripped, and without that text. `divergence`: the first minus the second; the
    larger it is, the more of the answer comes from what was stripped.

    `tokens`: of the answer, the one that ends it included. `weights_version`: the version that was served when the last
    of the two was made; -1: it is not known. `alternate`: what the model answers without the text, if that was asked.
    `after`: it is the second score, by weights with this step, which learned the example; 0: the one before that.
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
    """The example could not be scored. `given_up`: it is not tried again; else it is, after a while. `in_a_row`:
    so many times the engine gave no answer, whatever it was asked about; 0: it is the example that cannot be scored."""

    kind: ClassVar[str] = "score.failed"
    example: str
    reason: str
    attempts: int
    given_up: bool
    in_a_row: int = 0

    def key(self) -> str:
        return self.example
