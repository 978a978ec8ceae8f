"""Folds the events of recoveries into the state."""

from apollod.core.checkpoints.events import CheckpointCommitted
from apollod.core.checkpoints.state import CheckpointRef
from apollod.core.children.events import TrainerBound
from apollod.core.daemon.events import JournalCarried
from apollod.core.kernel.folding import Folds
from apollod.core.recovery.events import BaseKept, BaseLost, RecordedStep
from apollod.core.recovery.state import RecoveryState
from apollod.core.rollback.events import RollbackCompleted, RollbackStarted
from apollod.core.state import State
from apollod.core.training.events import StepCompleted


def _trainer_bound(own: RecoveryState, state: State, e: TrainerBound, at_ns: int) -> None:
    own.base_fingerprint, own.products = own.base_fingerprint or e.fingerprint, e.products


def _base_kept(own: RecoveryState, state: State, e: BaseKept, at_ns: int) -> None:
    own.base, own.base_lost = e, ""


def _base_lost(own: RecoveryState, state: State, e: BaseLost, at_ns: int) -> None:
    own.base, own.base_lost = None, e.reason


def _step_completed(own: RecoveryState, state: State, e: StepCompleted, at_ns: int) -> None:
    """Add the step. `state`: before this event."""
    own.since_ns = own.since_ns if own.since else at_ns
    running = state.training.running
    own.since.append(RecordedStep.of(running.begun if running else None, e, own.products))
    own.learned_with = state.daemon.settings
    own.ran_on = state.children.bound.versions if state.children.bound else {}


def _checkpoint_committed(own: RecoveryState, state: State, e: CheckpointCommitted, at_ns: int) -> None:
    if state.rollback.under_way is None:  # else the trainer is on its way from another one
        _start_from(own, state, CheckpointRef.of(e, at_ns), at_ns)


def _start_from(own: RecoveryState, state: State, ref: CheckpointRef, at_ns: int) -> None:
    """Start recoveries from this checkpoint, unless its steps were taken back while it was written."""
    if ref.step == state.training.version or any(done.step == ref.step for done in own.since):
        own.origin = ref
        own.since = [done for done in own.since if done.step > ref.step]
        own.since_ns = at_ns


def _rollback_started(own: RecoveryState, state: State, e: RollbackStarted, at_ns: int) -> None:
    own.since = list(e.replay)
    own.origin = state.checkpoints.at(e.origin)
    own.learned_with, own.ran_on = state.daemon.settings, e.ran_on


def _rollback_completed(own: RecoveryState, state: State, e: RollbackCompleted, at_ns: int) -> None:
    if state.checkpoints.newest is not None:  # it may have been committed meanwhile
        _start_from(own, state, state.checkpoints.newest, at_ns)


def _carried(own: RecoveryState, state: State, e: JournalCarried, at_ns: int) -> None:
    own.base_fingerprint = e.base_fingerprint


FOLDS: Folds = {
    TrainerBound: _trainer_bound,
    BaseKept: _base_kept,
    BaseLost: _base_lost,
    StepCompleted: _step_completed,
    CheckpointCommitted: _checkpoint_committed,
    RollbackStarted: _rollback_started,
    RollbackCompleted: _rollback_completed,
    JournalCarried: _carried,
}
