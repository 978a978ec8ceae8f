"""Checkpoints as the journal tells them."""

import msgspec

from apollod.core.checkpoints.events import CheckpointCommitted, CheckpointStarted


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
        return cls(e.step, e.path, e.fingerprint, at_ns, e.bytes, e.delta_bytes, e.full)


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
