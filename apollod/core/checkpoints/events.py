"""Events: checkpoints on disk."""

from typing import ClassVar

from apollod.core.kernel.event import Event


class CheckpointStarted(Event, frozen=True):
    kind: ClassVar[str] = "checkpoint.started"
    step: int
    path: str
    why: str
    full: bool = False

    def key(self) -> str:
        return str(self.step)


class CheckpointCommitted(Event, frozen=True):
    """The files of the model directory hold the weights of `step`; `path` holds its optimizer state and the delta to
    the previous content.

    `bytes`: of the directory, `delta_bytes` of them for the delta; `written_bytes`: to bring the model directory up to
    date. `held_s`: seconds in which no step could run. `files`: how each weight file was brought up to date (unchanged,
    blocks, reflink, rewrite), with `changed_blocks` of `blocks` of 4 KiB. `full`: `path` holds the weights, too.
    """

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
    """An old checkpoint was removed to make room (`[checkpoint] keep`)."""

    kind: ClassVar[str] = "checkpoint.removed"
    step: int
    path: str

    def key(self) -> str:
        return str(self.step)


class HookCompleted(Event, frozen=True):
    """`[checkpoint] hook` succeeded for the checkpoint of `step` at `path` ("" in journals that do not say)."""

    kind: ClassVar[str] = "hook.completed"
    step: int
    seconds: float
    path: str = ""

    def key(self) -> str:
        return str(self.step)


class HookFailed(Event, frozen=True):
    """The user's command failed; the checkpoint is still good."""

    kind: ClassVar[str] = "hook.failed"
    step: int
    seconds: float
    reason: str
    path: str = ""

    def key(self) -> str:
        return str(self.step)
