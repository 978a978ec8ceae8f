"""Checkpoints: weights on disk, how long they stay, and the command after one. Events, inputs, effects and state."""

from typing import ClassVar

import msgspec

from apollod.core.kernel.composing import composed
from apollod.core.kernel.effect import Effect
from apollod.core.kernel.event import StepEvent
from apollod.core.kernel.input import Input

# --- events ----------------------------------------------------------------------------------------------------------


class CheckpointStarted(StepEvent, frozen=True):
    kind: ClassVar[str] = "checkpoint.started"
    path: str
    why: str
    full: bool = False


class CheckpointCommitted(StepEvent, frozen=True):
    """The files of the model directory hold the weights of `step`; `path` holds its optimizer state and the delta to
    the previous content.

    `bytes`: of the directory, `delta_bytes` of them for the delta; `written_bytes`: to bring the model directory up to
    date. `held_s`: seconds in which no step could run. `files`: how each weight file was brought up to date (unchanged,
    blocks, reflink, rewrite), with `changed_blocks` of `blocks` of 4 KiB. `full`: `path` holds the weights, too.
    """

    kind: ClassVar[str] = "checkpoint.committed"
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


class CheckpointFailed(StepEvent, frozen=True):
    kind: ClassVar[str] = "checkpoint.failed"
    path: str
    reason: str


class CheckpointRemoved(StepEvent, frozen=True):
    """An old checkpoint was removed to make room (`[checkpoint] keep`)."""

    kind: ClassVar[str] = "checkpoint.removed"
    path: str


class HookCompleted(StepEvent, Input, frozen=True):
    """`[checkpoint] hook` succeeded for the checkpoint of `step` at `path` ("" in journals that do not say)."""

    kind: ClassVar[str] = "hook.completed"
    seconds: float
    path: str = ""


class HookFailed(StepEvent, Input, frozen=True):
    """The user's command failed; the checkpoint is still good."""

    kind: ClassVar[str] = "hook.failed"
    seconds: float
    reason: str
    path: str = ""


# --- inputs ----------------------------------------------------------------------------------------------------------


class CheckpointRequested(Input, frozen=True):
    """A user requests a checkpoint now."""

    why: str


class CheckpointWritten(Input, frozen=True, tag="checkpoint-written"):
    """Result of writing a checkpoint; `error` empty when committed. `damaged`: the error lies in the weights
    themselves; `doubtful`: not known whether it was committed, which has to be observed. If
    its writer is gone, `fingerprint` is that of the files, or empty when it is not committed. For the other fields see
    `CheckpointCommitted`."""

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


# --- effects ---------------------------------------------------------------------------------------------------------


class WriteCheckpoint(Effect, frozen=True, tag="write-checkpoint"):
    """Bring the files of `model_dir` to the weights of `step`, and keep the optimizer state and the delta to the files'
    previous content in the new directory `path`. `full`: keep the weights there, too.

    Without a `model_dir`: write a whole model directory with weights and optimizer state to `path`, and nothing else.
    """

    distinguished_by: ClassVar[tuple[str, ...]] = ("path",)
    step: int
    path: str
    model_dir: str = ""
    full: bool = False


class ObserveCheckpoint(Effect, frozen=True):
    """Finish or drop a checkpoint whose writer is gone; answered by `CheckpointWritten`."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("path",)
    step: int
    path: str


class RemoveCheckpoint(Effect, frozen=True):
    """Delete an old checkpoint's directory."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("path",)
    path: str


class RunHook(Effect, frozen=True):
    """Run the user's command for a committed checkpoint; repeated until it is reported."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("path",)
    step: int
    path: str
    fingerprint: str


# --- state -----------------------------------------------------------------------------------------------------------


class CheckpointRef(msgspec.Struct, frozen=True, gc=False):
    """A committed checkpoint. `bytes`: size of its directory; `delta_bytes`: size of the delta back to the one before
    it."""

    step: int
    path: str
    fingerprint: str
    at_ns: int
    bytes: int = 0
    delta_bytes: int = 0
    full: bool = False

    @classmethod
    def of(cls, e: CheckpointCommitted, at_ns: int) -> "CheckpointRef":
        """The checkpoint that an event committed."""
        return composed(CheckpointRef, e, at_ns=at_ns)


class CheckpointsState(msgspec.Struct):
    """Checkpoints on disk, the one being written, and the one that is due."""

    committed: list[CheckpointRef] = []
    """in the order of writing; the model directory holds the weights of the last one"""
    open: CheckpointStarted | None = None
    """the one that is being written"""
    removed: str = ""
    """path of the last one that was removed"""
    hook_due: CheckpointRef | None = None
    """the newest checkpoint, until the user's command has ended"""
    last_one_failed: bool = False
    """the checkpoint of the shutdown could not be written"""
    retry_ns: int = 0
    """no automatic checkpoint before this time, after one failed"""

    @property
    def newest(self) -> CheckpointRef | None:
        """The newest committed checkpoint."""
        return self.committed[-1] if self.committed else None

    def at(self, path: str) -> CheckpointRef | None:
        """The committed checkpoint in a directory."""
        return next((c for c in self.committed if c.path == path), None)
