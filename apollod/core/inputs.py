"""Everything that can happen to the daemon, as values that `decide` is given.

What the trainer reports crosses the socket in the very form defined here (tagged for msgpack); `wire.messages`
re-exports those types, so that no field is copied by hand on the way in.
"""

import msgspec

from apollod.core.effects import PauseEngine
from apollod.core.events import Again, Settings, Tier
from apollod.core.intake import Batch


class Tick(msgspec.Struct, frozen=True):
    """Time passed; nothing else happened."""


class Advance(msgspec.Struct, frozen=True):
    """Asked by the loop after every other input until nothing more follows: may the next thing begin?"""


class Started(msgspec.Struct, frozen=True):
    """The daemon is up on this journal. `base_problem`: what is wrong with the base that was kept."""

    pid: int
    version_name: str
    settings: Settings
    state_dir: str
    base_problem: str = ""


class StopRequested(msgspec.Struct, frozen=True):
    """SIGTERM, SIGINT, or the service manager."""

    reason: str


class LinesRead(msgspec.Struct, frozen=True):
    """A batch of complete lines from a file or a caller. `known`: ids in it that the journal holds already."""

    batch: Batch
    known: frozenset[str]


class CheckpointRequested(msgspec.Struct, frozen=True):
    """Somebody wants a checkpoint now."""

    why: str


class PauseRequested(msgspec.Struct, frozen=True):
    by: str


class ResumeRequested(msgspec.Struct, frozen=True):
    by: str


class RollbackRequested(msgspec.Struct, frozen=True):
    """Somebody wants the weights of step `to` back (0: those before the first step)."""

    to: int
    by: str


class RollbackPlanned(msgspec.Struct, frozen=True):
    """The answer to PlanRollback. `origin`: path of the checkpoint to start from (empty: the base), `replay` the steps from there
    to `to`, `undone` those that are taken back, newest first, with all their examples. With `error` there is no way."""

    to: int
    version: int
    fingerprint: str = ""
    origin: str = ""
    replay: tuple[Again, ...] = ()
    made_with: Settings | None = None
    """in force when the steps in `replay` were made"""
    undone: tuple[int, ...] = ()
    examples: tuple[str, ...] = ()
    error: str = ""


class RelearnRequested(msgspec.Struct, frozen=True):
    """Learn these examples (id, tier) again, whose steps were taken back."""

    examples: tuple[tuple[str, Tier], ...]
    by: str


# --- children -----------------------------------------------------------------------------------------------------


class EngineStarted(msgspec.Struct, frozen=True):
    """The engine process was spawned."""

    pid: int
    model_dir: str


class TrainerStarted(msgspec.Struct, frozen=True):
    """The trainer process was spawned."""

    pid: int


class EngineUp(msgspec.Struct, frozen=True):
    """The verified manifest is here and /health answers."""

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
    versions: dict[str, str]


class ChildExited(msgspec.Struct, frozen=True):
    """A child is gone, or was not started at all (`refused`: with a reason the user can act on)."""

    role: str
    """"engine" or "trainer" """
    pid: int
    code: int | None
    reason: str
    refused: bool = False


class Bound(msgspec.Struct, frozen=True, tag="bound"):
    """The trainer's model is bound; `fingerprint` is of the live memory as found. The rest: see `TrainerBound`."""

    fingerprint: str
    parameters: int
    elements: int
    versions: dict[str, str]
    held: dict[str, str] = {}
    tied: dict[str, str] = {}


class Restored(msgspec.Struct, frozen=True, tag="restored"):
    """Weights and optimizer after a Restore. `undone`: they are those of its `target`, steps were undone in memory."""

    fingerprint: str
    state_bytes: int
    undone: bool = False


class Encoded(msgspec.Struct, frozen=True):
    """One tokenised example. `cut`: prompt tokens dropped at the left; `digest`: of token ids and mask.
    `refused` is empty when it can be learned."""

    example: str
    tokens: int = 0
    targets: int = 0
    cut: int = 0
    digest: str = ""
    refused: str = ""


class EncodeDone(msgspec.Struct, frozen=True, tag="encode-done"):
    """Results in the order asked."""

    results: list[Encoded]


class StepDone(msgspec.Struct, frozen=True, tag="step-done"):
    """A finished step. `applied` false: nothing was written, because the loss is not finite (None) or above its limit."""

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


class StepFailed(msgspec.Struct, frozen=True, tag="step-failed"):
    """The step could not run; the trainer exits after this, since memory may be torn. `out_of_memory`: so would the next
    trainer over these examples."""

    step: int
    reason: str
    out_of_memory: bool = False


class CheckpointWritten(msgspec.Struct, frozen=True, tag="checkpoint-written"):
    """Result of writing a checkpoint; `error` empty when committed. `damaged`: the error lies in the weights themselves;
    `doubtful`: whether it is committed has to be observed. For the other fields see `CheckpointCommitted`."""

    step: int
    path: str
    fingerprint: str
    bytes: int
    seconds: float
    error: str = ""
    damaged: bool = False
    doubtful: bool = False
    held_s: float = 0.0
    written_bytes: int = 0
    delta_bytes: int = 0
    changed_blocks: int = 0
    blocks: int = 0
    files: dict[str, str] = {}


class CheckpointObserved(msgspec.Struct, frozen=True):
    """What became of a checkpoint whose writer is gone: its fingerprint, or empty when it is not committed."""

    step: int
    path: str
    fingerprint: str
    error: str = ""


class HookDone(msgspec.Struct, frozen=True):
    """The user's command ended; `error` empty: with exit code 0."""

    step: int
    path: str
    seconds: float
    error: str = ""


class BaseDone(msgspec.Struct, frozen=True):
    """The base was kept, or was not (`error`)."""

    path: str
    how: str = ""
    bytes: int = 0
    seconds: float = 0.0
    error: str = ""


class EnginePaused(msgspec.Struct, frozen=True):
    """The engine is idle, or could not be paused (`error`): it answered so, or is `gone`. `asked`: the effect that this answers."""

    asked: PauseEngine
    seconds: float
    error: str = ""
    gone: bool = False


class EngineResumed(msgspec.Struct, frozen=True):
    """Requests go on; asked for, or because the longest pause was over (`expired`). `active`: how many there are."""

    seconds: float
    expired: bool = False
    active: int = 0


class Probed(msgspec.Struct, frozen=True, tag="probed"):
    """The trainer's side of an alignment: `ids` of the probe with `logprobs` of ids 1.., or `digests` of all tensors."""

    step: int
    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    digests: dict[str, str] = {}
    seconds: float = 0.0
    error: str = ""


class Scored(msgspec.Struct, frozen=True):
    """Log-probabilities of ids 1.. of the probe, by trainer and engine; `probe`: digest of the ids."""

    step: int
    probe: str
    trainer: tuple[float, ...]
    engine: tuple[float, ...]
    seconds: float
    error: str = ""


class Compared(msgspec.Struct, frozen=True, tag="compared"):
    """Names of tensors that the engine does not see as the trainer does, derived ones first, and what is wrong with each."""

    step: int
    differing: dict[str, str] = {}
    error: str = ""


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The trainer cannot do what was asked and says why; it stays up."""

    what: str
    reason: str
    hint: str = ""


Input = (
    Tick | Advance | Started | StopRequested | LinesRead | CheckpointRequested | PauseRequested | ResumeRequested
    | RollbackRequested | RollbackPlanned | RelearnRequested | EngineStarted | TrainerStarted | EngineUp | ChildExited | Bound
    | Restored | EncodeDone | StepDone | StepFailed | CheckpointWritten | CheckpointObserved | HookDone | BaseDone | EnginePaused
    | EngineResumed | Probed | Scored | Compared | Refused
)
