"""Windows and steps. Events, inputs, effects and state."""

from collections.abc import Collection, Sequence
from typing import Any, ClassVar, NamedTuple

import msgspec

from apollod.core.facts.holding import HELD_MAX, SHORT
from apollod.core.facts.intake.events import Tier
from apollod.core.kernel.composing import composed
from apollod.core.kernel.effect import Effect
from apollod.core.kernel.event import Event, StepEvent
from apollod.core.kernel.input import Input
from apollod.core.settings import ProductsDtype

# --- pace ------------------------------------------------------------------------------------------------------------
# Estimates the duration of a step from earlier ones; used for display, and to limit the replays of a search.

KEPT = 16
"""number of last steps in an estimate"""


class Pace(NamedTuple):
    """Length and duration of an applied step."""

    tokens: int
    seconds: float


def expected_s(recent: Sequence[Pace], tokens: int) -> float | None:
    """Expected seconds for a step of `tokens`: by the median time a token, but at least as long as the quickest step,
    since some of the work does not depend on the length. None if not known."""
    known = [pace for pace in recent if pace.tokens > 0]
    if not known or tokens <= 0:
        return None
    rates = sorted(pace.seconds / pace.tokens for pace in known)
    return max(rates[len(rates) // 2] * tokens, min(pace.seconds for pace in known))


# --- room ------------------------------------------------------------------------------------------------------------
# Limits the tokens of one step, examples and anchors together, for which memory is planned.
#
# The limit concerns tokens that go through the model at once: a batch of examples and the batch of anchors, each with
# the longest length times the count, since shorter ones are padded.

HELD_ROOM = HELD_MAX * SHORT
"""tokens of anchors beside an example of `max_tokens`; a shorter one leaves more"""


def bounds(max_tokens: int, holds: bool) -> tuple[int, ...]:
    """Limits for which memory may be planned, the preferred one first: room for several anchors beside the longest
    examples, for one, for none, or for none beside examples of half that length. One example alone may always have
    `max_tokens`."""
    if not holds:
        return (max_tokens, max_tokens // 2)
    return (max_tokens + HELD_ROOM, max_tokens + SHORT, max_tokens, max_tokens // 2)


def tokens_bound(max_tokens: int, holds: bool, planned: int = 0) -> int:
    """The limit in force. `planned`: the limit for which memory was planned; 0: not known."""
    wished = bounds(max_tokens, holds)[0]
    return min(wished, planned) if planned else wished


def practice_bound(max_tokens: int, bound: int, held: int) -> int:
    """Most tokens of the practices of one step beside `held` tokens of anchors: the rest of the bound, but at least
    half of it."""
    return min(max_tokens, max(bound // 2, bound - held))


# --- terms -----------------------------------------------------------------------------------------------------------
# Parameters of a step, shared by its intent, its record and each replay.


class StepTerms(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Parameters of a step besides its learning rate.

    `loss_limit`: a loss above it writes nothing; 0: no limit. `objective`: the loss, by name. `again_of`: the earlier
    step that it repeats without some examples, with the same random numbers; 0: none. `held`: ids of anchors
    (`anchor.frozen`), whose mean divergence is added to the loss `hold` times. `together`: its examples go through the
    model as one batch. `warmup`: updates, counted from moments of zero, over which the learning rate rises
    (`schedules.risen`); 0: it does not, or, in older records, the recorded rate has risen already. `zero`: z0 of `kto`,
    in nats an answer.
    """

    loss_limit: float = 0.0
    objective: str = "sft"
    again_of: int = 0
    held: tuple[str, ...] = ()
    hold: float = 0.0
    together: bool = False
    warmup: int = 0
    zero: float = 0.0

    def terms(self) -> dict[str, Any]:
        """These fields by name, to build another form of the same step."""
        return {name: getattr(self, name) for name in StepTerms.__struct_fields__}


# --- events ----------------------------------------------------------------------------------------------------------


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


class StepCompleted(StepEvent, frozen=True):
    """Result. `applied` false: the loss was not finite (`loss` None), above its limit, or below `[trainer] loss_min`
    (`known`), and nothing was written; `note`: the reason. `skipped_*` count parameters; `loss` is the mean over all
    learned tokens of examples; `lr`: before any `StepTerms.warmup`; `examples`: see `StepStarted`; `held`: divergence
    from each anchor that the step held, before its write, nats a token; `losses`: of each example, in order, if the
    step learned several and all are finite; `metrics`: what the objective says of the step by name, before its write,
    the mean over examples, where it is finite."""

    kind: ClassVar[str] = "step.completed"
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
    metrics: dict[str, float] = {}


class StepFailed(StepEvent, frozen=True):
    """The step could not be run; weights are those of its parent, its number is used up, its example is held.

    `apart`: it was a step of several `examples`, which are not held but wait to be learned one by one; or (`fewer`) a
    step of one example with several anchors, which waits to be learned with one of them. `torn` false: it wrote
    nothing, and its trainer goes on with the next one.
    """

    kind: ClassVar[str] = "step.failed"
    example: str
    reason: str
    attempts: int
    examples: tuple[str, ...] = ()
    apart: bool = False
    torn: bool = True
    fewer: bool = False


def all_examples(step: StepStarted | StepCompleted | StepFailed) -> tuple[str, ...]:
    """Every example that a step learns, in order."""
    return step.examples or (step.example,)


def all_digests(step: StepStarted) -> tuple[str, ...]:
    """Digests of the tokens of these examples."""
    return step.digests or (step.digest,)


# --- learned ---------------------------------------------------------------------------------------------------------
# A past step with its inputs, as needed to repeat it without some of its examples.


class Learned(StepTerms, frozen=True):
    """A completed step. `step`: its number; other fields as in its `step.started`."""

    step: int
    examples: tuple[str, ...]
    digests: tuple[str, ...]
    lr: float
    window: int
    tier: Tier

    @classmethod
    def of(cls, begun: StepStarted, tier: Tier) -> "Learned":
        """The step of this intent, whose examples are of this tier."""
        return composed(Learned, begun, examples=all_examples(begun), digests=all_digests(begun), tier=tier)

    @property
    def number(self) -> int:
        """Number of the step whose random numbers are used: the original one when a step is repeated."""
        return self.again_of or self.step

    def without(self, gone: Collection[str]) -> "Learned":
        """The step without these examples; it may have none left."""
        left = [pair for pair in zip(self.examples, self.digests, strict=True) if pair[0] not in gone]
        return msgspec.structs.replace(self, examples=tuple(e for e, _ in left), digests=tuple(d for _, d in left))


# --- inputs ----------------------------------------------------------------------------------------------------------


class Undoable(msgspec.Struct, frozen=True):
    """Steps that the trainer can take back in memory, for display: `steps`, the last ones; `reason`: why it cannot keep
    any."""

    steps: int
    reason: str = ""


class StepDone(Input, frozen=True, tag="step-done"):
    """A finished step. `applied` false: nothing was written, because the loss is not finite (None), above its limit, or
    so low (`known`) that there is nothing to learn. `held`: the divergence of each anchor that it held, nats a token,
    before its write; empty if nothing was written. `losses`, `metrics`: see `StepCompleted`."""

    step: int
    applied: bool
    loss: float | None
    grad_norm: float
    update_norm: float
    tokens: int
    targets: int
    fingerprint: str
    seconds: float
    skipped_zero: int
    skipped_nonfinite: int
    replay: bool = False
    note: str = ""
    undoable: Undoable | None = None
    known: bool = False
    held: tuple[float, ...] = ()
    losses: tuple[float, ...] = ()
    metrics: dict[str, float] = {}


class StepFailure(Input, frozen=True, tag="step-failed"):
    """The step could not run. `out_of_memory`: the next trainer could not run these examples either. `torn`: a part may
    have been written, and the trainer exits; else weights and optimizer are as before, and it stays."""

    step: int
    reason: str
    out_of_memory: bool = False
    torn: bool = True


# --- effects ---------------------------------------------------------------------------------------------------------


class RunStep(StepTerms, Effect, frozen=True):
    """One optimizer step that learns `examples`, whose tokens have these `digests`. `replay`: the journal has its
    result already. `products`: dtype of its matrix products; None: the trainer's own choice."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("step",)
    step: int
    examples: tuple[str, ...]
    digests: tuple[str, ...]
    lr: float
    replay: bool = False
    products: ProductsDtype | None = None

    @classmethod
    def of(cls, begun: StepStarted) -> "RunStep":
        """The step of this intent, without its result."""
        return composed(RunStep, begun, examples=all_examples(begun), digests=all_digests(begun))


# --- state -----------------------------------------------------------------------------------------------------------


class Running(msgspec.Struct, gc=False):
    """The step whose intent is open. `attempts`: trainers that died over it."""

    begun: StepStarted
    started_ns: int = 0
    """time of its intent"""
    attempts: int = 0

    @property
    def step(self) -> int:
        """Number of the step."""
        return self.begun.step

    @property
    def examples(self) -> tuple[str, ...]:
        """Examples that it learns, in order."""
        return all_examples(self.begun)


class Window(msgspec.Struct):
    """A run of steps; `planned`: examples that waited when it opened; `examples`: learned ones, including those of the
    running step. `losses`: number of applied steps, `loss_total`: the sum of their losses."""

    number: int
    planned: int
    steps: int = 0
    examples: int = 0
    losses: int = 0
    loss_total: float = 0.0


class TrainingCounts(msgspec.Struct):
    """Counts of examples, over the life of the journal."""

    trained: int = 0
    skipped: int = 0
    """their step wrote nothing"""
    held: int = 0
    """in earlier journals; for this one see `review`"""


class TrainingState(msgspec.Struct):
    """Counts of learned examples, and the step under way."""

    step: int = 0
    """number of the last step that was started; never reused"""
    version: int = 0
    """number of the last completed step"""
    fingerprint: str = ""
    running: Running | None = None
    unlearned: int = 0
    """steps in a row that wrote nothing, without those of known examples"""
    window: Window | None = None
    windows: int = 0
    last_step_ns: int = 0
    """time at which the last step was completed"""
    recent: list[Pace] = []
    """the last steps, the newest last"""
    counts: TrainingCounts = msgspec.field(default_factory=TrainingCounts)
