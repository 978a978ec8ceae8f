"""The facts that the journal holds: the only vocabulary on disk.

Law of this file: a kind, once released, is never renamed or reused; a field is never removed; a change of meaning is
a new `version` with an upcast in `wire.journal`. Bodies hold JSON values only, no floats that JSON cannot carry.
"""

from typing import ClassVar, Literal

import msgspec


class Event(msgspec.Struct, frozen=True, gc=False):
    """Base of all facts. `kind` and `version` go to columns of their own; the fields are the JSON body.

    `gc=False` (an event holds no cycle): a million of them are not searched for garbage while they are folded.
    """

    kind: ClassVar[str] = ""
    version: ClassVar[int] = 1

    def key(self) -> str:
        """What the event is about, for the journal's indexed `key` column: a step number, an example id, a source."""
        return ""


# --- daemon -------------------------------------------------------------------------------------------------------


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


# --- children -----------------------------------------------------------------------------------------------------


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


# --- intake -------------------------------------------------------------------------------------------------------


class SourceDiscovered(Event, frozen=True):
    """A file seen for the first time. `source` is its identity: device, inode and a hash of its first bytes."""

    kind: ClassVar[str] = "source.discovered"
    source: str
    path: str
    replaces: str = ""

    def key(self) -> str:
        return self.source


class SourceConsumed(Event, frozen=True):
    """Bytes up to `offset` and lines up to `line` of a source are taken; appended with what they became."""

    kind: ClassVar[str] = "source.consumed"
    source: str
    path: str
    offset: int
    line: int
    accepted: int
    duplicates: int
    rejected: int

    def key(self) -> str:
        return self.source


class SourceQuarantined(Event, frozen=True):
    """A line (or, with `line` 0, a whole file) that is no record. Its bytes are kept in the file `kept`."""

    kind: ClassVar[str] = "source.quarantined"
    source: str
    path: str
    line: int
    reason: str
    bytes: int
    sha256: str
    kept: str

    def key(self) -> str:
        return self.source


Tier = Literal["direct", "bulk", "dream"]
"""How an example came, which decides its learning rate: given by somebody who waits for it (HTTP, `ctl submit`, feedback),
read from a file or log, imagined."""


class ExampleAccepted(Event, frozen=True):
    """`record` is the canonical record, `example` its content id (hex of BLAKE2b-128)."""

    kind: ClassVar[str] = "example.accepted"
    example: str
    record: msgspec.Raw
    source: str
    line: int
    tier: Tier = "bulk"

    def key(self) -> str:
        return self.example


class ExampleDuplicate(Event, frozen=True):
    kind: ClassVar[str] = "example.duplicate"
    example: str
    source: str
    line: int

    def key(self) -> str:
        return self.example


class ExampleEncoded(Event, frozen=True):
    """Token counts, and a digest of token ids and mask that every later run of the example has to match."""

    kind: ClassVar[str] = "example.encoded"
    example: str
    tokens: int
    targets: int
    cut: int
    digest: str

    def key(self) -> str:
        return self.example


class ExampleRejected(Event, frozen=True):
    """An accepted example that turned out not to be learnable. `kept`: file with the record."""

    kind: ClassVar[str] = "example.rejected"
    example: str
    reason: str

    def key(self) -> str:
        return self.example


# --- training -----------------------------------------------------------------------------------------------------


class WindowOpened(Event, frozen=True):
    """A run of steps begins; `planned` examples were waiting, over which the learning rate warms up."""

    kind: ClassVar[str] = "window.opened"
    window: int
    planned: int


class WindowClosed(Event, frozen=True):
    kind: ClassVar[str] = "window.closed"
    window: int
    steps: int


class StepStarted(Event, frozen=True):
    """Intent. With the seed and the weights of `parent` these fields determine the step's result exactly.

    `example` is the first one; a step that learns several names all of them in `examples`, with their `digests`, and a step
    that learns one leaves both empty (`all_examples`). `loss_limit`: a loss above it writes nothing; 0: there is no limit.
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
    loss_limit: float = 0.0

    def key(self) -> str:
        return str(self.step)


class StepCompleted(Event, frozen=True):
    """Result. `applied` false: the loss was not finite (`loss` None) or above its limit, and nothing was written; `note` says
    which. `skipped_*` count parameters; `loss` is the mean over all learned tokens; `examples`: see `StepStarted`."""

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

    def key(self) -> str:
        return str(self.step)


class StepFailed(Event, frozen=True):
    """The step could not be run; weights are those of its parent, its number is used up, its example is held.

    `apart`: it was a step of several `examples`. None of them is held yet, they wait again to be learned one by one.
    """

    kind: ClassVar[str] = "step.failed"
    step: int
    example: str
    reason: str
    attempts: int
    examples: tuple[str, ...] = ()
    apart: bool = False

    def key(self) -> str:
        return str(self.step)


def all_examples(step: StepStarted | StepCompleted | StepFailed) -> tuple[str, ...]:
    """Every example that a step learns, in order."""
    return step.examples or (step.example,)


class ReplayVerified(Event, frozen=True):
    """Steps after a checkpoint were run again and every fingerprint was the recorded one."""

    kind: ClassVar[str] = "replay.verified"
    first: int
    last: int
    fingerprint: str


class ReplayDiverged(Event, frozen=True):
    """A step run again did not give the recorded bits. Training stops; serving goes on."""

    kind: ClassVar[str] = "replay.diverged"
    step: int
    expected: str
    found: str
    detail: str


# --- publishing ---------------------------------------------------------------------------------------------------


class EnginePaused(Event, frozen=True):
    """Requests wait (vLLM's pause, mode keep) while the trainer writes. `step`: the one written, or the version restored.
    `seconds`: until the engine was idle."""

    kind: ClassVar[str] = "engine.paused"
    step: int
    seconds: float


class EngineResumed(Event, frozen=True):
    """Requests go on. `seconds`: how long they waited; `expired`: `fence_max_s` was over before the write was; `active`: how
    many there were."""

    kind: ClassVar[str] = "engine.resumed"
    seconds: float
    expired: bool = False
    active: int = 0


class AlignmentStarted(Event, frozen=True):
    """Intent: no step begins until engine and trainer have scored the probe with the weights of `step`."""

    kind: ClassVar[str] = "alignment.started"
    step: int

    def key(self) -> str:
        return str(self.step)


class AlignmentMeasured(Event, frozen=True):
    """Log-probabilities of the same tokens, by the trainer minus by the engine.

    `tokens` were compared, of which `nonfinite` have no finite difference; `worst`: position of the largest one in the
    probe, `probe`: digest of its token ids. `aligned` false: more than `bound`, the weights are not shared.
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

    def key(self) -> str:
        return str(self.step)


class AlignmentFailed(Event, frozen=True):
    """It could not be measured; nothing is known, training goes on, the next one is due as if it had been."""

    kind: ClassVar[str] = "alignment.failed"
    step: int
    reason: str

    def key(self) -> str:
        return str(self.step)


# --- checkpoints --------------------------------------------------------------------------------------------------


class CheckpointStarted(Event, frozen=True):
    kind: ClassVar[str] = "checkpoint.started"
    step: int
    path: str
    why: str
    full: bool = False

    def key(self) -> str:
        return str(self.step)


class CheckpointCommitted(Event, frozen=True):
    """The files of the model directory hold the weights of `step`; `path` holds its optimizer state and the way back.

    `bytes`: of the directory, `delta_bytes` of them for the way back; `written_bytes`: to bring the model directory up to date.
    `held_s`: seconds in which no step could run. `files`: how each
    weight file was brought up to date (unchanged, blocks, reflink, rewrite), with `changed_blocks` of `blocks` of 4 KiB.
    `full`: `path` holds the weights, too."""

    kind: ClassVar[str] = "checkpoint.committed"
    step: int
    path: str
    fingerprint: str
    bytes: int
    seconds: float
    held_s: float = 0.0
    written_bytes: int = 0
    delta_bytes: int = 0
    changed_blocks: int = 0
    blocks: int = 0
    files: dict[str, str] = {}
    full: bool = False

    def key(self) -> str:
        return str(self.step)


class CheckpointFailed(Event, frozen=True):
    kind: ClassVar[str] = "checkpoint.failed"
    step: int
    path: str
    reason: str

    def key(self) -> str:
        return str(self.step)


class CheckpointRemoved(Event, frozen=True):
    """An old checkpoint makes room (`[checkpoint] keep`)."""

    kind: ClassVar[str] = "checkpoint.removed"
    step: int
    path: str

    def key(self) -> str:
        return str(self.step)


class HookCompleted(Event, frozen=True):
    """`[checkpoint] hook` did its work for the checkpoint of `step`."""

    kind: ClassVar[str] = "hook.completed"
    step: int
    seconds: float

    def key(self) -> str:
        return str(self.step)


class HookFailed(Event, frozen=True):
    """It did not; the checkpoint is as good as before."""

    kind: ClassVar[str] = "hook.failed"
    step: int
    seconds: float
    reason: str

    def key(self) -> str:
        return str(self.step)


# --- rollback -----------------------------------------------------------------------------------------------------


class Again(msgspec.Struct, frozen=True, gc=False):
    """A completed step as it was done: what running it again needs, and what must come out."""

    step: int
    examples: tuple[str, ...]
    digests: tuple[str, ...]
    lr: float
    loss_limit: float
    applied: bool
    skipped: int
    fingerprint: str


class RollbackRequested(Event, frozen=True):
    """The weights of step `to` are wanted back; no other step begins before."""

    kind: ClassVar[str] = "rollback.requested"
    to: int
    by: str


class RollbackRefused(Event, frozen=True):
    """There is no way to them; nothing was changed."""

    kind: ClassVar[str] = "rollback.refused"
    to: int
    reason: str


class RollbackStarted(Event, frozen=True):
    """From here on the truth is step `to`, with `fingerprint`; every restart goes there. `from_step`: where it came from.

    `origin`: checkpoint to restore (empty: the weights before the first step), `replay`: the steps from there to `to`.
    `undone`: the steps that are taken back, newest first; `examples`: what they learned."""

    kind: ClassVar[str] = "rollback.started"
    to: int
    from_step: int
    fingerprint: str
    origin: str
    replay: tuple[Again, ...]
    undone: tuple[int, ...]
    examples: tuple[str, ...]

    def key(self) -> str:
        return str(self.to)


class RollbackCompleted(Event, frozen=True):
    """The served weights and the optimizer are those of step `to`. `how`: memory (steps undone) or checkpoint (restored,
    and `replayed` steps run again). `seconds`: since it was started."""

    kind: ClassVar[str] = "rollback.completed"
    to: int
    from_step: int
    fingerprint: str
    how: str
    replayed: int
    seconds: float

    def key(self) -> str:
        return str(self.to)


class ExampleRequeued(Event, frozen=True):
    """An example whose step was taken back is to be learned again."""

    kind: ClassVar[str] = "example.requeued"
    example: str
    tier: Tier
    by: str

    def key(self) -> str:
        return self.example


# --- the base -----------------------------------------------------------------------------------------------------


class BaseKept(Event, frozen=True):
    """The weights before the first step have a second way to them. `how`: reflink, link (hard) or copy."""

    kind: ClassVar[str] = "base.kept"
    path: str
    how: str
    bytes: int
    seconds: float


class BaseLost(Event, frozen=True):
    """They could not be kept, or what was kept is gone or was changed: a replay from 0 needs them from elsewhere."""

    kind: ClassVar[str] = "base.lost"
    path: str
    reason: str


KINDS: dict[str, type[Event]] = {
    cls.kind: cls
    for cls in (
        DaemonStarted, ShutdownRequested, DaemonStopped, TrainingPaused, TrainingHalted, TrainingResumed,
        EngineSpawned, EngineReady, EngineExited, TrainerSpawned, TrainerBound, TrainerAttached, TrainerExited,
        SourceDiscovered, SourceConsumed, SourceQuarantined,
        ExampleAccepted, ExampleDuplicate, ExampleEncoded, ExampleRejected,
        WindowOpened, WindowClosed, StepStarted, StepCompleted, StepFailed, ReplayVerified, ReplayDiverged,
        CheckpointStarted, CheckpointCommitted, CheckpointFailed, CheckpointRemoved, HookCompleted, HookFailed, BaseKept, BaseLost,
        RollbackRequested, RollbackRefused, RollbackStarted, RollbackCompleted, ExampleRequeued,
        EnginePaused, EngineResumed, AlignmentStarted, AlignmentMeasured, AlignmentFailed,
    )
}


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """An event as the journal holds it: its place in the order, and when (for people; never used for order)."""

    seq: int
    at_ns: int
    event: Event
