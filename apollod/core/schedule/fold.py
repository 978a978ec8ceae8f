"""How facts change the schedule."""

from apollod.core.checkpoints.events import CheckpointCommitted
from apollod.core.daemon.events import DaemonStarted
from apollod.core.kernel.folding import Folds
from apollod.core.rollback.events import RollbackStarted
from apollod.core.schedule.events import NightClosed, NightOpened, NightPlanned
from apollod.core.schedule.state import ScheduleState
from apollod.core.state import State
from apollod.core.training.events import StepCompleted


def _started(own: ScheduleState, state: State, e: DaemonStarted, at_ns: int) -> None:
    """A new life is told its hours anew."""
    own.planned, own.open = None, False


def _planned(own: ScheduleState, state: State, e: NightPlanned, at_ns: int) -> None:
    own.planned = e if e.hours else None


def _opened(own: ScheduleState, state: State, e: NightOpened, at_ns: int) -> None:
    own.open, own.steps = True, 0


def _closed(own: ScheduleState, state: State, e: NightClosed, at_ns: int) -> None:
    own.open = False


def _step_completed(own: ScheduleState, state: State, e: StepCompleted, at_ns: int) -> None:
    if own.open:
        own.steps += 1
        own.unsaved = True


def _saved(own: ScheduleState, state: State, e: CheckpointCommitted, at_ns: int) -> None:
    own.unsaved = own.unsaved and e.step != state.training.version


def _rollback_started(own: ScheduleState, state: State, e: RollbackStarted, at_ns: int) -> None:
    own.unsaved = False


FOLDS: Folds = {
    DaemonStarted: _started,
    NightPlanned: _planned,
    NightOpened: _opened,
    NightClosed: _closed,
    StepCompleted: _step_completed,
    CheckpointCommitted: _saved,
    RollbackStarted: _rollback_started,
}
