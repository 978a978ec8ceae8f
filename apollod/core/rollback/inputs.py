"""Inputs: a rollback is requested, or was planned."""

from apollod.core.kernel.input import Input
from apollod.core.recovery.events import RecordedStep
from apollod.core.settings import Settings


class RollbackRequested(Input, frozen=True):
    """A user wants the weights of step `to` back (0: those before the first step)."""

    to: int
    by: str


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
