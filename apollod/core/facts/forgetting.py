"""Forgetting: learned examples are removed from the weights. Events, inputs, effects and state."""

from typing import ClassVar, Literal

import msgspec

from apollod.core.facts.training import Learned
from apollod.core.kernel.effect import Effect
from apollod.core.kernel.event import Event
from apollod.core.kernel.input import Input
from apollod.core.settings import Settings

# --- events ----------------------------------------------------------------------------------------------------------


class ForgetRequested(Event, Input, frozen=True):
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


# --- inputs ----------------------------------------------------------------------------------------------------------


class ForgetPlanned(Input, frozen=True):
    """The answer to PlanForget for weights of `version`. Each of the `examples` was learned by the step at its place in
    `steps`, the first of which follows step `to`; `again`: the steps from there on, without these examples;
    `made_with`, `ran_on`: settings and environment of all of these. `far`: learned before the steps that were searched;
    `absent`: not learned by any step of these weights. `error`: why there is no plan, or what differs among the steps
    to be repeated."""

    version: int
    examples: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()
    to: int = 0
    again: tuple[Learned, ...] = ()
    made_with: Settings | None = None
    ran_on: dict[str, str] = {}
    far: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    error: str = ""


# --- effects ---------------------------------------------------------------------------------------------------------


class PlanForget(Effect, frozen=True):
    """Read from the journal which of the last `most` steps of weights `version` learned these examples, and what has to
    be repeated without them."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("version", "examples")
    examples: tuple[str, ...]
    version: int
    most: int


# --- state -----------------------------------------------------------------------------------------------------------


class Wish(msgspec.Struct, frozen=True, gc=False):
    """A request to forget an example: requester and reason."""

    by: str
    reason: str


class UnderWay(msgspec.Struct):
    """An intent to forget. `steps` learned the examples of `wishes`, in their order. `phase`: back, the weights go back
    to step `to`; again, the other steps are repeated; stuck, they cannot go back, for the `reason`."""

    number: int
    wishes: dict[str, Wish]
    steps: tuple[int, ...]
    to: int
    again: tuple[Learned, ...]
    since_ns: int
    phase: Literal["back", "again", "stuck"] = "back"
    reason: str = ""
    repeated: int = 0

    @property
    def longest_ago(self) -> tuple[str, ...]:
        """Examples that the first of the steps learned."""
        return tuple(example for example, step in zip(self.wishes, self.steps, strict=True) if step == self.steps[0])


class ForgettingState(msgspec.Struct):
    """Open requests and refusals, by example id."""

    wanted: dict[str, Wish] = {}
    under_way: UnderWay | None = None
    refused: dict[str, str] = {}
    """why they stay learned"""
    number: int = 0
    """number of the last intent"""
    forgotten: int = 0
    """examples, over the life of the journal"""
