"""Facts: the way back."""

from typing import ClassVar

from apollod.core.kernel.event import Event
from apollod.core.recovery.events import RecordedStep


class RollbackRequested(Event, frozen=True):
    """The weights of step `to` are wanted back; no other step begins before."""

    kind: ClassVar[str] = "rollback.requested"
    to: int
    by: str


class RollbackRefused(Event, frozen=True):
    """No way leads to these weights; nothing was changed."""

    kind: ClassVar[str] = "rollback.refused"
    to: int
    reason: str


class RollbackStarted(Event, frozen=True):
    """From here on the truth is step `to`, with `fingerprint`; every restart goes there. `from_step`: where it came
    from.

    `origin`: checkpoint to restore (empty: the weights before the first step), `replay`: the steps from there to `to`.
    `undone`: the steps that are taken back, newest first; `examples`: what they learned. `ran_on`: what those in
    `replay` were made on (`TrainerBound.versions`)."""

    kind: ClassVar[str] = "rollback.started"
    to: int
    from_step: int
    fingerprint: str
    origin: str
    replay: tuple[RecordedStep, ...]
    undone: tuple[int, ...]
    examples: tuple[str, ...]
    ran_on: dict[str, str] = {}

    def key(self) -> str:
        return str(self.to)


class RollbackCompleted(Event, frozen=True):
    """The served weights and the optimizer are those of step `to`. `how`: memory (steps undone) or checkpoint
    (restored, and `replayed` steps run again). `seconds`: since it was started."""

    kind: ClassVar[str] = "rollback.completed"
    to: int
    from_step: int
    fingerprint: str
    how: str
    replayed: int
    seconds: float

    def key(self) -> str:
        return str(self.to)
