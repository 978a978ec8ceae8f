"""Comparisons of engine and trainer by log-probabilities. Events, inputs, effects and state."""

import statistics
from collections.abc import Sequence
from typing import ClassVar, Literal

import msgspec

from apollod.core.kernel.effect import Effect
from apollod.core.kernel.event import StepEvent
from apollod.core.kernel.input import Input

# --- bounds ----------------------------------------------------------------------------------------------------------
# Bounds on the difference between engine and trainer, from the kind of model and its earlier comparisons.
#
# Log-probabilities tell how far two programs differ, not whether they read the same weights: digests of the tensors
# tell that. So a difference first has every tensor compared, and only one that no rounding makes halts training without
# a tensor that differs. Figures: docs/benchmarks/2026-11-23-alignment.md.

ModelKind = Literal["dense", "hybrid"]
"""hybrid: some layers are recurrent (linear attention, state spaces, convolutions), and round along the whole text"""

CEILINGS: dict[ModelKind, float] = {"dense": 0.15, "hybrid": 0.375}
"""Mean absolute difference of log-probabilities over the built-in text, in nats; only bugs in a model's code were seen
to exceed it. A real dense model gives 0.055 when correct and 0.19 with a wrong attention scale in one of 30 layers. No
real hybrid was measured; random hybrids give 2.5 to 3 times the mean of dense ones."""
NOTHING: dict[ModelKind, float] = {"dense": 0.05, "hybrid": 0.125}
"""Training never halts at a mean up to this one, however small earlier means were. A comparison over a few tokens that
exceeds it triggers a comparison of the whole text and of every tensor before the next step."""
JUMP = 4.0
"""times the usual mean: training halts above it"""
NOTICED = 1.5
"""times the usual mean: every tensor is compared above it"""
REMEMBERED = 16
"""earlier comparisons, whose median is the usual mean"""


def usual_of(past: Sequence[float]) -> float:
    """The mean difference to expect of this model; 0 while none was measured."""
    return statistics.median(past) if past else 0.0


def bound_of(kind: ModelKind, configured: float, usual: float = 0.0) -> float:
    """The mean above which training halts, whatever the tensors are; `configured`: `[trainer] align_max`, 0 for the
    bound that follows from the kind of model and from its `usual` mean."""
    if configured:
        return configured
    ceiling = CEILINGS[kind]
    return min(ceiling, max(NOTHING[kind], JUMP * usual)) if usual else ceiling


def noticed(mean: float, usual: float, least: float = 0.0) -> bool:
    """True if this mean exceeds the usual one, and `least`, by enough to compare the tensors."""
    expected = max(least, usual * NOTICED)
    return 0.0 < expected < mean


# --- cost ------------------------------------------------------------------------------------------------------------
# Limits how long a comparison may delay the step that waits for it.
#
# A step of N tokens costs at least three forward passes over them (one forward, and a backward that is two), besides
# costs that do not depend on N. A forward pass over n tokens is therefore at most n / 3N of it.

TOKENS = 256
"""tokens of the built-in text if no step waits: enough for a steady mean; one short prefill for the engine"""
FEWEST = 8
"""tokens: fewer would show next to nothing. A step of less than 54 tokens waits for longer than SHARE of its cost"""
FORWARDS = 3
"""least cost of a step, in forward passes over its tokens"""
SHARE = 0.05
"""share of the next step's cost that a comparison may take: half for the trainer's pass, the rest for the engine's
answer"""


def tokens_before(step: int) -> int:
    """Number of tokens to compare before a step of `step` tokens begins."""
    return min(TOKENS, max(FEWEST, int(SHARE / 2 * FORWARDS * step)))


def patience_s(step: int, probe: int, seconds: float) -> float:
    """The seconds that a step of `step` tokens waits for the engine, after the trainer took `seconds` for `probe`
    tokens."""
    return max(0.0, SHARE * FORWARDS * step / max(1, probe) - 1.0) * seconds


# --- events ----------------------------------------------------------------------------------------------------------


class AlignmentStarted(StepEvent, frozen=True):
    """Intent: engine and trainer are to score the same tokens with the weights of `step`, and no step begins before.

    `number` counts them, 0 in journals of the first releases; `tokens` of the probe at most, 0: all. `gives_way`:
    nothing waited for it when it began, and it ends as soon as something does.
    """

    kind: ClassVar[str] = "alignment.started"
    number: int = 0
    tokens: int = 0
    gives_way: bool = False

    @property
    def whole(self) -> bool:
        """True if the comparison covers the whole text."""
        return self.tokens in (0, TOKENS)


class AlignmentOvertaken(StepEvent, frozen=True):
    """The engine took longer over its half than a step may wait: steps begin, the comparison goes on beside them."""

    kind: ClassVar[str] = "alignment.overtaken"
    number: int


class AlignmentAbandoned(StepEvent, frozen=True):
    """The comparison ended without a result and is made again. `doubted`: there was a difference, over a few tokens or
    while a step may have written; the next one is over all of them, and waited for until it is done."""

    kind: ClassVar[str] = "alignment.abandoned"
    number: int
    reason: str
    doubted: bool = False


class AlignmentMeasured(StepEvent, frozen=True):
    """Log-probabilities of the same tokens, by the trainer minus by the engine.

    `tokens` were compared, of which `nonfinite` have no finite difference; `worst`: position of the largest one in the
    probe, `probe`: digest of its token ids. `aligned` false: more than `bound`, and training halts. `usual`: the mean
    of this model before, 0 if there is none. `compares`: why every tensor is compared next; empty: not compared. Before
    it was recorded, tensors were compared where `aligned` is false.
    """

    kind: ClassVar[str] = "alignment.measured"
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


class AlignmentCompared(StepEvent, frozen=True):
    """Every tensor was compared by digest: `differing` of them differ, the first ones with name and problem."""

    kind: ClassVar[str] = "alignment.compared"
    number: int
    differing: int
    names: dict[str, str] = {}


class AlignmentFailed(StepEvent, frozen=True):
    """The comparison could not be made; training goes on, and the next one is due as if it had been."""

    kind: ClassVar[str] = "alignment.failed"
    reason: str


# --- inputs ----------------------------------------------------------------------------------------------------------


class Probed(Input, frozen=True, tag="probed"):
    """The trainer's side of comparison `number`: `ids` of the probe with `logprobs` of ids 1.., or `digests` of all
    tensors. `gave_way`: neither, because of another request meanwhile."""

    step: int
    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    digests: dict[str, str] = {}
    seconds: float = 0.0
    error: str = ""
    number: int = 0
    gave_way: bool = False


class ScoreLate(Input, frozen=True):
    """The engine has not answered within the time that a step may wait; it still may."""

    number: int


class Scored(Input, frozen=True):
    """Log-probabilities of ids 1.. of the probe, by trainer and engine; `probe`: digest of the ids."""

    step: int
    number: int
    probe: str
    trainer: tuple[float, ...]
    engine: tuple[float, ...]
    seconds: float
    error: str = ""
    kind: ModelKind = "dense"


class Compared(Input, frozen=True, tag="compared"):
    """Names of tensors that the engine sees differently than the trainer, derived ones first, and the problem of
    each."""

    step: int
    differing: dict[str, str] = {}
    error: str = ""
    number: int = 0


# --- effects ---------------------------------------------------------------------------------------------------------


class ProbeTrainer(Effect, frozen=True, tag="probe"):
    """Have the trainer score the first `tokens` of the probe with the weights of `step`; with `digests` it digests
    every tensor instead. `gives_way`: it stops at the next other request."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("number", "digests")
    step: int
    number: int
    tokens: int = 0
    gives_way: bool = False
    digests: bool = False


class ScoreProbe(Effect, frozen=True):
    """Have the engine score `ids`, once it is up to date; `trainer`: the trainer's log-probabilities of ids 1.. given
    those before. `patience_s`: seconds after which to report that a step should wait no longer; None: never."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("number",)
    step: int
    number: int
    ids: tuple[int, ...]
    trainer: tuple[float, ...]
    seconds: float
    patience_s: float | None = None


class DropScore(Effect, frozen=True):
    """Drop the engine's answer of a comparison that was abandoned."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("number",)
    number: int


class CompareWeights(Effect, frozen=True, tag="compare"):
    """Have the engine compare every tensor it multiplies with to the trainer's `digests` (by name)."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("number",)
    step: int
    number: int
    digests: dict[str, str]


# --- state -----------------------------------------------------------------------------------------------------------


class AlignmentState(msgspec.Struct):
    """The comparison that is open, and the newest result."""

    open: AlignmentStarted | None = None
    opened_ns: int = 0
    """when the last one began"""
    beside: bool = False
    """the open one took too long: steps run beside it"""
    steps_before: int = 0
    """steps that had begun when the last comparison began"""
    count: int = 0
    """comparisons so far"""
    doubted: bool = False
    """the last one found a difference that chance or a step may have made"""
    measured: AlignmentMeasured | None = None
    """the newest result"""
    version: int = -1
    """version at which this trainer and engine were last compared; -1: not yet"""
    whole_version: int = -1
    """the same for comparisons over the whole text"""
    past: list[float] = msgspec.field(default_factory=list)
    """means of the newest comparisons over the whole text after which training went on"""
    past_probe: str = ""
    """digest of the token ids of these comparisons"""
    looked: list[int] = msgspec.field(default_factory=list)
    """versions at which the tensors of this trainer were compared"""
    same: int | None = None
    """the newest version at which all tensors were equal"""

    @property
    def comparing(self) -> bool:
        """True if the open comparison is at its second stage: log-probabilities are known, tensors are compared."""
        return self.open is not None and self.measured is not None and self.open.number == self.measured.number

    @property
    def differs(self) -> bool:
        """True if the open comparison found a difference that is being located."""
        return self.comparing and self.measured is not None and not self.measured.aligned

    @property
    def waited_for(self) -> bool:
        """True if a comparison is open that a step has to wait for."""
        return self.open is not None and (self.differs or not (self.beside or self.open.gives_way))
