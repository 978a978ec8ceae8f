"""Events: windows and steps."""

from typing import ClassVar

from apollod.core.kernel.event import Event
from apollod.core.training.terms import StepTerms


class WindowOpened(Event, frozen=True):
    """A run of steps begins; `planned` examples were waiting, over which the learning rate warms up."""

    kind: ClassVar[str] = "window.opened"
    window: int
    planned: int


class WindowClosed(Event, frozen=True):
    kind: ClassVar[str] = "window.closed"
    window: int
    steps: int


class StepStarted(StepTerms, Event, frozen=True):
    """Intent. With the seed and the weights of `parent` these fields determine the step's result exactly.

    `example` is the first one; a step that learns several names all of them in `examples`, with their `digests`, and a
    step that learns one leaves both empty (`all_examples`, `all_digests`).
    """

    kind: ClassVar[str] = "step.started"
    step: int
    parent: int
    example: str
    digest: str
    lr: float
    window: int
    examples: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()

    def key(self) -> str:
        return str(self.step)


class StepCompleted(Event, frozen=True):
    """Result. `applied` false: the loss was not finite (`loss` None), above its limit, or below `[trainer] loss_min`
    (`known`), and nothing was written; `note`: the reason. `skipped_*` count parameters; `loss` is the mean over all
    learned tokens of examples; `examples`: see `StepStarted`; `held`: divergence from each anchor that the step held,
    before its write, nats a token; `losses`: of each example, in order, if the step learned
    several and all are finite."""

    kind: ClassVar[str] = "step.completed"
    step: int
    parent: int
    example: str
    applied: bool
    loss: float | None
    lr: float
    grad_norm: float
    update_norm: float
    tokens: int
    targets: int
    skipped_zero: int
    skipped_nonfinite: int
    fingerprint: str
    seconds: float
    note: str = ""
    examples: tuple[str, ...] = ()
    known: bool = False
    held: tuple[float, ...] = ()
    losses: tuple[float, ...] = ()

    def key(self) -> str:
        return str(self.step)


class StepFailed(Event, frozen=True):
    """The step could not be run; weights are those of its parent, its number is used up, its example is held.

    `apart`: it was a step of several `examples`, which are not held but wait to be learned one by one; or (`fewer`) a
    step of one example with several anchors, which waits to be learned with one of them. `torn` false: it wrote
    nothing, and its trainer goes on with the next one.
    """

    kind: ClassVar[str] = "step.failed"
    step: int
    example: str
    reason: str
    attempts: int
    examples: tuple[str, ...] = ()
    apart: bool = False
    torn: bool = True
    fewer: bool = False

    def key(self) -> str:
        return str(self.step)


def all_examples(step: StepStarted | StepCompleted | StepFailed) -> tuple[str, ...]:
    """Every example that a step learns, in order."""
    return step.examples or (step.example,)


def all_digests(step: StepStarted) -> tuple[str, ...]:
    """Digests of the tokens of these examples."""
    return step.digests or (step.digest,)
