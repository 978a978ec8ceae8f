"""Engine and trainer as processes: their starts and ends. Events, inputs, effects and state."""

from typing import ClassVar, Literal

import msgspec

from apollod.core.kernel.effect import Effect
from apollod.core.kernel.event import Event
from apollod.core.kernel.input import Input
from apollod.core.schedules import EXITS_MAX, EXITS_WINDOW_S, NO_FAILURE, Retry, backoff_s, is_recent, refused_s
from apollod.core.settings import ProductsDtype

# --- events ----------------------------------------------------------------------------------------------------------


class EngineSpawned(Event, frozen=True):
    kind: ClassVar[str] = "engine.spawned"
    pid: int
    model_dir: str
    attempt: int


class EngineReady(Event, Input, frozen=True):
    """The plugin has handed over a verified manifest and /health answers. Counts are tensors of the checkpoint.

    Facts of the bridge: writes are seen without a transfer (`in_place`), the trainer's view of the weights survives the
    engine (`outlives_engine`), generation has to be paused around a write (`needs_pause`).

    `step_tokens`: tokens of one step, examples and anchors, for which memory was planned; 0: not known.
    """

    kind: ClassVar[str] = "engine.ready"
    version: ClassVar[int] = 2
    pid: int
    url: str
    model: str
    bridge: str
    parameters: int
    live: int
    cast: int
    rederive: int
    frozen: int
    bytes: int
    seconds: float
    versions: dict[str, str] = {}
    in_place: bool = True
    outlives_engine: bool = False
    needs_pause: bool = False
    step_tokens: int = 0


class ExitEvent(Event, frozen=True):
    """Base of the ends of a child. `refused`: not started, or stopped on purpose, for a reason the user can act on;
    `expected`: the core wanted it, which the process that reports it does not know."""

    pid: int
    code: int | None
    reason: str
    refused: bool = False
    expected: bool = False


class EngineExited(ExitEvent, Input, frozen=True):
    kind: ClassVar[str] = "engine.exited"


class TrainerSpawned(Event, frozen=True):
    kind: ClassVar[str] = "trainer.spawned"
    pid: int
    attempt: int


class TrainerBound(Event, frozen=True):
    """The trainer sees the engine's memory; `fingerprint`: of the weights it found there, before anything was restored.

    Other facts that the bits of a step depend on: `versions` (libraries, `device`, `threads`), and where memory differs
    from the files: `held` (tensor name -> its wider dtype, or "frozen") and `tied` (alias -> name). `products`: dtype
    of bf16 matrix products, "bf16" or "float32"; steps that are run again use the same, on any CPU. `template`: why
    conversations cannot be learned properly with the model's chat template; usually empty.
    """

    kind: ClassVar[str] = "trainer.bound"
    pid: int
    fingerprint: str
    parameters: int
    elements: int
    versions: dict[str, str] = {}
    held: dict[str, str] = {}
    tied: dict[str, str] = {}
    products: ProductsDtype = "bf16"
    template: str = ""


class TrainerAttached(Event, frozen=True):
    """Weights and optimizer are at `step`; `replayed` steps were run again to get there."""

    kind: ClassVar[str] = "trainer.attached"
    pid: int
    step: int
    fingerprint: str
    replayed: int
    restored: str
    """checkpoint directory that was restored, "base" for the untrained weights, "" when memory was already right"""
    state_bytes: int


class TrainerExited(ExitEvent, Input, frozen=True):
    kind: ClassVar[str] = "trainer.exited"


# --- inputs ----------------------------------------------------------------------------------------------------------


class EngineStarted(Input, frozen=True):
    """The engine process was spawned."""

    pid: int
    model_dir: str


class TrainerStarted(Input, frozen=True):
    """The trainer process was spawned."""

    pid: int


class Refused(Input, frozen=True, tag="refused"):
    """The trainer cannot do what was asked, and gives the reason; it stays up."""

    what: str
    reason: str
    hint: str = ""


# --- effects ---------------------------------------------------------------------------------------------------------


class SpawnEngine(Effect, frozen=True):
    """Check the model directory and the port, then start the engine on `model_dir`."""

    model_dir: str


class SpawnTrainer(Effect, frozen=True):
    """Start the trainer process."""


class StopChild(Effect, frozen=True):
    """End a child: politely (`grace_s`), then by SIGKILL of its process group."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("role",)
    role: Literal["engine", "trainer"]
    grace_s: float


class AttachTrainer(Effect, frozen=True):
    """Hand manifest and memory to the trainer; sent as soon as it is connected."""

    fresh: bool


# --- state -----------------------------------------------------------------------------------------------------------

NO_ENGINE = EngineReady(
    pid=0, url="", model="", bridge="", parameters=0, live=0, cast=0, rederive=0, frozen=0, bytes=0, seconds=0.0
)
"""facts to show before an engine was ready"""


class Child(msgspec.Struct):
    """A child process as the journal tells it."""

    phase: Literal["absent", "spawned", "ready"] = "absent"
    """ready: the engine serves; the trainer's weights and optimizer are at the last step"""
    pid: int = 0
    spawns: int = 0
    crashes_ns: list[int] = []
    """times of recent unexpected exits"""
    refusals: int = 0
    """in a row"""
    retry: Retry = NO_FAILURE
    given_up: bool = False
    doomed: bool = False
    """it was ended on purpose, which does not count as a crash"""
    error: str = ""
    spawned_ns: int = 0
    """start time of the present process"""

    def may_start(self, now_ns: int) -> bool:
        """True if the child is down and its back-off has passed."""
        return self.phase == "absent" and not self.given_up and self.retry.is_due(now_ns)

    def spawned(self, pid: int, at_ns: int) -> None:
        self.phase, self.pid, self.doomed, self.spawned_ns = "spawned", pid, False, at_ns
        self.spawns += 1

    def exited(self, at_ns: int, reason: str, refused: bool, expected: bool) -> None:
        """Plan the next start: at once after an expected end, by back-off after a crash, patiently after a refusal."""
        self.phase, self.pid, self.doomed = "absent", 0, False
        if expected:
            return
        self.error = reason
        if refused:
            self.refusals += 1
            self.retry = self.retry.after(at_ns, refused_s(self.refusals))
            return
        self.refusals = 0
        self.crashes_ns = [t for t in self.crashes_ns if is_recent(at_ns, t, EXITS_WINDOW_S)] + [at_ns]
        self.retry = self.retry.after(at_ns, backoff_s(len(self.crashes_ns)))
        self.given_up = len(self.crashes_ns) >= EXITS_MAX

    def absolved(self, attempts: int) -> None:
        """Forget this many crashes: they were caused by an example that is now set aside."""
        if attempts:
            del self.crashes_ns[-attempts:]
            self.given_up = len(self.crashes_ns) >= EXITS_MAX


class ChildrenState(msgspec.Struct):
    """Both children, and the facts they reported."""

    engine: Child = msgspec.field(default_factory=Child)
    trainer: Child = msgspec.field(default_factory=Child)
    engine_facts: EngineReady | None = None
    engine_dir: str = ""
    """the directory that the engine was started on"""
    engine_fresh: bool = False
    """no trainer was bound since the engine loaded its weights"""
    bound: TrainerBound | None = None
    state_bytes: int = 0
    """size of the optimizer's state"""

    @property
    def outlived(self) -> bool:
        """True if the trainer's view of the weights survives the engine."""
        return self.engine_facts is not None and self.engine_facts.outlives_engine
