"""Folds the events of nights into the state."""

from apollod.core.checkpoints.events import CheckpointCommitted
from apollod.core.daemon.events import DaemonStarted, DaemonStopped, TrainingPaused, TrainingResumed
from apollod.core.kernel.folding import Folds
from apollod.core.rollback.events import RollbackStarted
from apollod.core.schedule.events import NightClosed, NightOpened, NightPlanned
from apollod.core.schedule.missed import account, plan, waits
from apollod.core.schedule.state import ScheduleState
from apollod.core.state import State
from apollod.core.training.events import StepCompleted


def _started(own: ScheduleState, state: State, e: DaemonStarted, at_ns: int) -> None:
    """Reset: a new life is given its hours anew, and how long the old one ran after its last step is not known."""
    own.planned, own.open, own.since_ns, own.until_ns, own.chance_ns = None, False, 0, 0, at_ns


def _stopped(own: ScheduleState, state: State, e: DaemonStopped, at_ns: int) -> None:
    account(own, at_ns)


def _paused(own: ScheduleState, state: State, e: TrainingPaused, at_ns: int) -> None:
    account(own, at_ns)
    own.since_ns = 0


def _resumed(own: ScheduleState, state: State, e: TrainingResumed, at_ns: int) -> None:
    account(own, at_ns)
    own.since_ns, own.chance_ns = at_ns if own.open else 0, at_ns


def _opened(own: ScheduleState, state: State, e: NightOpened, at_ns: int) -> None:
    own.open, own.steps, own.until_ns = True, 0, e.until_ns
    own.since_ns = 0 if state.daemon.paused else at_ns


def _closed(own: ScheduleState, state: State, e: NightClosed, at_ns: int) -> None:
    account(own, at_ns)
    if own.until_ns and not waits(state):
        own.owed_ns = 0
    own.open, own.since_ns, own.until_ns = False, 0, 0


def _step_completed(own: ScheduleState, state: State, e: StepCompleted, at_ns: int) -> None:
    account(own, at_ns)
    if own.open:
        own.steps += 1
        own.unsaved = True


def _saved(own: ScheduleState, state: State, e: CheckpointCommitted, at_ns: int) -> None:
    own.unsaved = own.unsaved and e.step != state.training.version


def _rollback_started(own: ScheduleState, state: State, e: RollbackStarted, at_ns: int) -> None:
    own.unsaved = False


FOLDS: Folds = {
    DaemonStarted: _started,
    DaemonStopped: _stopped,
    TrainingPaused: _paused,
    TrainingResumed: _resumed,
    NightPlanned: plan,
    NightOpened: _opened,
    NightClosed: _closed,
    StepCompleted: _step_completed,
    CheckpointCommitted: _saved,
    RollbackStarted: _rollback_started,
}
