"""Events: learned examples are removed from the weights."""

from typing import ClassVar

from apollod.core.kernel.event import Event
from apollod.core.training.learned import Learned


class ForgetRequested(Event, frozen=True):
    """Request to take these examples out of the weights. `by`: a person, `judge`, or `evidence`."""

    kind: ClassVar[str] = "forget.requested"
    examples: tuple[str, ...]
    by: str
    reason: str


class ForgetStarted(Event, frozen=True):
    """Intent: the weights go back from step `from_step` to step `to`, before the first of the `steps` (one for each of
    `examples`) that learned them; the steps `again`, which leave them out, are repeated."""

    kind: ClassVar[str] = "forget.started"
    number: int
    examples: tuple[str, ...]
    steps: tuple[int, ...]
    to: int
    from_step: int
    again: tuple[Learned, ...]

    def key(self) -> str:
        return str(self.number)


class ForgetRefused(Event, frozen=True):
    """No way leads to weights without these examples; they stay learned."""

    kind: ClassVar[str] = "forget.refused"
    examples: tuple[str, ...]
    reason: str


class ForgetCompleted(Event, frozen=True):
    """Result: no step of the weights with this `fingerprint` learned these examples. `number`: of the intent, 0 if
    nothing had to be done; `repeated`: number of repeated steps; `left`: number of steps not repeated, for the
    `reason`, which stay taken back."""

    kind: ClassVar[str] = "forget.completed"
    examples: tuple[str, ...]
    fingerprint: str
    number: int = 0
    repeated: int = 0
    left: int = 0
    reason: str = ""
    seconds: float = 0.0

    def key(self) -> str:
        return str(self.number)
