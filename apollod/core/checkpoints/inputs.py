"""Inputs: a checkpoint is requested, was written or observed; the user's command after it ended."""

from apollod.core.kernel.input import Input


class CheckpointRequested(Input, frozen=True):
    """A user requests a checkpoint now."""

    why: str


class CheckpointWritten(Input, frozen=True, tag="checkpoint-written"):
    """Result of writing a checkpoint; `error` empty when committed. `damaged`: the error lies in the weights
    themselves; `doubtful`: not known whether it was committed, which has to be observed. For the other fields see
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


class CheckpointObserved(Input, frozen=True):
    """The state of a checkpoint whose writer is gone: its fingerprint, or empty when it is not committed."""

    step: int
    path: str
    fingerprint: str
    error: str = ""


class HookDone(Input, frozen=True):
    """The user's command ended; `error` empty: exit code 0."""

    step: int
    path: str
    seconds: float
    error: str = ""
