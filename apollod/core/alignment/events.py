"""Events: comparisons of the weights that engine and trainer see."""

from typing import ClassVar

from apollod.core.alignment.cost import TOKENS
from apollod.core.kernel.event import Event


class AlignmentStarted(Event, frozen=True):
    """Intent: engine and trainer are to score the same tokens with the weights of `step`, and no step begins before.

    `number` counts them, 0 in journals of the first releases; `tokens` of the probe at most, 0: all. `gives_way`:
    nothing waited for it when it began, and it ends as soon as something does.
    """

    kind: ClassVar[str] = "alignment.started"
    step: int
    number: int = 0
    tokens: int = 0
    gives_way: bool = False

    @property
    def whole(self) -> bool:
        """True if the comparison covers the whole text."""
        return self.tokens in (0, TOKENS)

    def key(self) -> str:
        return str(self.step)


class AlignmentOvertaken(Event, frozen=True):
    """The engine took longer over its half than a step may wait: steps begin, the comparison goes on beside them."""

    kind: ClassVar[str] = "alignment.overtaken"
    step: int
    number: int

    def key(self) -> str:
        return str(self.step)


class AlignmentAbandoned(Event, frozen=True):
    """The comparison ended without a result and is made again. `doubted`: there was a difference, over a few tokens or
    while a step may have written; the next one is over all of them, and waited for until it is done."""

    kind: ClassVar[str] = "alignment.abandoned"
    step: int
    number: int
    reason: str
    doubted: bool = False

    def key(self) -> str:
        return str(self.step)


class AlignmentMeasured(Event, frozen=True):
    """Log-probabilities of the same tokens, by the trainer minus by the engine.

    `tokens` were compared, of which `nonfinite` have no finite difference; `worst`: position of the largest one in the
    probe, `probe`: digest of its token ids. `aligned` false: more than `bound`, and training halts. `usual`: the mean
    of this model before, 0 if there is none. `compares`: why every tensor is compared next; empty: not compared. Before
    it was recorded, tensors were compared where `aligned` is false.
    """

    kind: ClassVar[str] = "alignment.measured"
    step: int
    tokens: int
    mean_abs_diff: float
    max_abs_diff: float
    mean_diff: float
    worst: int
    nonfinite: int
    probe: str
    bound: float
    aligned: bool
    seconds: float
    number: int = 0
    usual: float = 0.0
    compares: str = ""

    def key(self) -> str:
        return str(self.step)


class AlignmentCompared(Event, frozen=True):
    """Every tensor was compared by digest: `differing` of them differ, the first ones with name and problem."""

    kind: ClassVar[str] = "alignment.compared"
    step: int
    number: int
    differing: int
    names: dict[str, str] = {}

    def key(self) -> str:
        return str(self.step)


class AlignmentFailed(Event, frozen=True):
    """The comparison could not be made; training goes on, and the next one is due as if it had been."""

    kind: ClassVar[str] = "alignment.failed"
    step: int
    reason: str

    def key(self) -> str:
        return str(self.step)
