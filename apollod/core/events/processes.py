"""The daemon, its configuration and its two children."""

from typing import Any, ClassVar, Literal

import msgspec

from apollod.core.events.base import Event


class Settings(msgspec.Struct, frozen=True):
    """The part of the configuration that decisions depend on; recorded so that a fold knows it too."""

    model_path: str
    optimizer: str = "apollo"
    rank: int = 64
    lr: float = 1e-5
    warmup: float = 0.1
    checkpoint_delay_s: float = 600.0
    checkpoint_keep: int = 20
    checkpoint_keep_bytes: int = 0
    checkpoint_keep_days: float = 0.0
    """0: no such limit"""
    checkpoint_hook: bool = False
    """is there a command to run after each"""
    keep_base: Literal["auto", "copy", "off"] = "auto"
    replay_max: int = 1000
    """steps after which a checkpoint is written even while training goes on; bounds recovery"""
    scale: Literal["channel", "tensor"] = "channel"
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    rounding: Literal["stochastic", "nearest", "master"] = "stochastic"
    seed: int = 0
    max_tokens: int = 4096
    moments: Literal["float32", "bfloat16"] = "float32"
    limiter: float = 1.01
    checkpointing: bool = False
    layers: str = ""
    freeze: tuple[str, ...] = ()
    """these and `rank`: what a step depends on besides its own fields; a replay takes them from here"""
    schedule: Literal["constant", "cosine"] = "constant"
    lr_floor: float = 0.1
    lr_direct: float = 1e-4
    """of tier `direct`; `lr` is that of the others"""
    accumulate: int = 1
    loss_max: float = 0.0
    loss_spike: float = 0.0
    """these: what makes a step's own fields, where they are recorded"""
    publish: Literal["hogwild", "fenced"] = "hogwild"
    fence_max_s: float = 60.0
    """longest pause of a fenced write; then requests go on whatever the trainer does"""
    cache: Literal["reset", "salt", "keep"] = "reset"
    cache_every: int = 1
    """steps after which cached prefixes are forgotten; also at the end of a window"""
    align_every: int = 100
    """steps between two comparisons of the trainer's log-probabilities with the engine's; 0: only at attach"""
    align_max: float = 0.1
    """mean absolute difference above which the weights count as not shared"""


class DaemonStarted(Event, frozen=True):
    kind: ClassVar[str] = "daemon.started"
    pid: int
    version_name: str
    settings: Settings
    state_dir: str = ""


class ConfigChanged(Event, frozen=True):
    """This life has other settings than the one before. `changed`: by name, the value before and the value now."""

    kind: ClassVar[str] = "config.changed"
    changed: dict[str, list[Any]]


class ShutdownRequested(Event, frozen=True):
    kind: ClassVar[str] = "shutdown.requested"
    reason: str


class DaemonStopped(Event, frozen=True):
    kind: ClassVar[str] = "daemon.stopped"
    step: int
    fingerprint: str


class TrainingPaused(Event, frozen=True):
    kind: ClassVar[str] = "training.paused"
    by: str
    reason: str = ""


class TrainingHalted(Event, frozen=True):
    """Training stopped by itself; serving goes on. Only `ctl resume` starts it again."""

    kind: ClassVar[str] = "training.halted"
    reason: str
    hint: str = ""


class TrainingResumed(Event, frozen=True):
    kind: ClassVar[str] = "training.resumed"
    by: str


class EngineSpawned(Event, frozen=True):
    kind: ClassVar[str] = "engine.spawned"
    pid: int
    model_dir: str
    attempt: int


class EngineReady(Event, frozen=True):
    """The plugin has handed over a verified manifest and /health answers. Counts are tensors of the checkpoint."""

    kind: ClassVar[str] = "engine.ready"
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


class EngineExited(Event, frozen=True):
    """`refused`: it was not started, or stopped on purpose with a reason the user can act on."""

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
    """The trainer sees the engine's memory; `fingerprint` is what it found there, before anything was restored.

    What else the bits of a step depend on: `versions` (libraries, `device`, `threads`), and where memory is not as the
    files are: `held` (tensor name -> its wider dtype, or "frozen") and `tied` (alias -> name).
    """

    kind: ClassVar[str] = "trainer.bound"
    pid: int
    fingerprint: str
    parameters: int
    elements: int
    versions: dict[str, str] = {}
    held: dict[str, str] = {}
    tied: dict[str, str] = {}


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
