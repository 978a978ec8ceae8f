"""Events: rollbacks."""

from typing import ClassVar

from apollod.core.kernel.event import Event
from apollod.core.recovery.events import RecordedStep


class RollbackRequested(Event, frozen=True):
    """The weights are to go back to step `to`; no step begins before."""

    kind: ClassVar[str] = "rollback.requested"
    to: int
    by: str


class RollbackRefused(Event, frozen=True):
    """These weights cannot be reached; nothing was changed."""

    kind: ClassVar[str] = "rollback.refused"
    to: int
    reason: str


class RollbackStarted(Event, frozen=True):
    """The weights of step `to`, with `fingerprint`, are valid from here on, and every restart restores them.
    `from_step`: the step before.

    `origin`: checkpoint to restore (empty: the weights before the first step), `replay`: the steps from there to `to`.
    `undone`: the steps that are taken back, newest first; `examples`: of these. `ran_on`: environment of the steps in
    `replay` (`TrainerBound.versions`)."""

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
    (restored, and `replayed` steps run again). `seconds`: since its start."""

    kind: ClassVar[str] = "rollback.completed"
    to: int
    from_step: int
    fingerprint: str
    how: str
    replayed: int
    seconds: float

    def key(self) -> str:
        return str(self.to)
