"""Weights on disk: checkpoints, the base, and the way back."""

from typing import ClassVar

import msgspec

from apollod.core.events.base import Event


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
    """`[checkpoint] hook` did its work for the checkpoint of `step` at `path` ("" in journals that do not say)."""

    kind: ClassVar[str] = "hook.completed"
    step: int
    seconds: float
    path: str = ""

    def key(self) -> str:
        return str(self.step)


class HookFailed(Event, frozen=True):
    """It did not; the checkpoint is as good as before."""

    kind: ClassVar[str] = "hook.failed"
    step: int
    seconds: float
    reason: str
    path: str = ""

    def key(self) -> str:
        return str(self.step)


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
