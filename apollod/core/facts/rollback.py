"""Rollbacks to the weights of an earlier step, on the running server. Events, inputs, effects and state."""

from typing import ClassVar

import msgspec

from apollod.core.facts.recovery import RecordedStep
from apollod.core.kernel.effect import Effect
from apollod.core.kernel.event import Event
from apollod.core.kernel.input import Input
from apollod.core.settings import Settings

# --- events ----------------------------------------------------------------------------------------------------------


class RollbackRequested(Event, Input, frozen=True):
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


# --- inputs ----------------------------------------------------------------------------------------------------------


class RollbackPlanned(Input, frozen=True):
    """The answer to PlanRollback. `origin`: path of the checkpoint to start from (empty: the base), `replay` the steps
    from there to `to`, `undone` those that are taken back, newest first, with all their examples. `error`: why it is
    impossible."""

    to: int
    version: int
    fingerprint: str = ""
    origin: str = ""
    replay: tuple[RecordedStep, ...] = ()
    made_with: Settings | None = None
    """settings when the steps in `replay` were made"""
    ran_on: dict[str, str] = {}
    """environment of these steps: see `TrainerBound.versions`"""
    undone: tuple[int, ...] = ()
    examples: tuple[str, ...] = ()
    error: str = ""


# --- effects ---------------------------------------------------------------------------------------------------------


class PlanRollback(Effect, frozen=True):
    """Plan from the journal the way from version `version` back to step `to`, from one of `checkpoints` (path by
    step)."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("to", "version")
    to: int
    version: int
    checkpoints: dict[int, str]


# --- state -----------------------------------------------------------------------------------------------------------


class RollbackState(msgspec.Struct):
    """A request, then its execution."""

    wanted: RollbackRequested | None = None
    under_way: RollbackStarted | None = None
    started_ns: int = 0
