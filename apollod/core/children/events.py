"""Events: engine and trainer as processes."""

from typing import ClassVar

from apollod.core.kernel.event import Event
from apollod.core.settings import ProductsDtype


class EngineSpawned(Event, frozen=True):
    kind: ClassVar[str] = "engine.spawned"
    pid: int
    model_dir: str
    attempt: int


class EngineReady(Event, frozen=True):
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


class EngineExited(Event, frozen=True):
    """`refused`: not started, or stopped on purpose, for a reason the user can act on."""

    kind: ClassVar[str] = "engine.exited"
    pid: int
    code: int | None
    reason: str
    refused: bool = False
    expected: bool = False


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


class TrainerExited(Event, frozen=True):
    kind: ClassVar[str] = "trainer.exited"
    pid: int
    code: int | None
    reason: str
    refused: bool = False
    expected: bool = False
