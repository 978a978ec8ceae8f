"""Folds the daemon's start, stop, pause and resume into the state."""

from apollod.core.daemon.events import (
    DaemonStarted,
    DaemonStopped,
    JournalCarried,
    JournalContinued,
    ShutdownRequested,
    TrainingHalted,
    TrainingPaused,
    TrainingResumed,
)
from apollod.core.daemon.state import DaemonState
from apollod.core.kernel.folding import Folds
from apollod.core.rollback.events import RollbackStarted
from apollod.core.state import State


def _started(own: DaemonState, state: State, e: DaemonStarted, at_ns: int) -> None:
    own.settings, own.state_dir, own.started_at_ns = e.settings, e.state_dir, at_ns
    own.history_bytes = e.history_bytes
    if not state.recovery.base_fingerprint:  # no trainer has seen the weights of a model yet
        own.model_path = e.settings.model_path
    own.stopping = own.stopped = False
    own.halted = ""  # a new life tries again; a defect that remains halts it again


def _shutdown_requested(own: DaemonState, state: State, e: ShutdownRequested, at_ns: int) -> None:
    own.stopping, own.stopping_since_ns = True, at_ns


def _stopped(own: DaemonState, state: State, e: DaemonStopped, at_ns: int) -> None:
    own.stopped = True


def _paused(own: DaemonState, state: State, e: TrainingPaused, at_ns: int) -> None:
    own.paused, own.paused_by = True, e.by


def _halted(own: DaemonState, state: State, e: TrainingHalted, at_ns: int) -> None:
    own.halted = f"{e.reason}; {e.hint}" if e.hint else e.reason


def _resumed(own: DaemonState, state: State, e: TrainingResumed, at_ns: int) -> None:
    own.paused, own.paused_by, own.halted = False, "", ""


def _rollback_started(own: DaemonState, state: State, e: RollbackStarted, at_ns: int) -> None:
    own.halted = ""


def _continued(own: DaemonState, state: State, e: JournalContinued, at_ns: int) -> None:
    own.continued = e


def _carried(own: DaemonState, state: State, e: JournalCarried, at_ns: int) -> None:
    own.model_path = e.model_path


FOLDS: Folds = {
    DaemonStarted: _started,
    ShutdownRequested: _shutdown_requested,
    DaemonStopped: _stopped,
    TrainingPaused: _paused,
    TrainingHalted: _halted,
    TrainingResumed: _resumed,
    RollbackStarted: _rollback_started,
    JournalContinued: _continued,
    JournalCarried: _carried,
}
