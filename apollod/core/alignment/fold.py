"""How facts change comparisons."""

from apollod.core.alignment.events import AlignmentFailed, AlignmentMeasured, AlignmentStarted
from apollod.core.alignment.state import AlignmentState
from apollod.core.children.events import EngineExited, TrainerAttached, TrainerExited
from apollod.core.daemon.events import DaemonStarted, TrainingHalted
from apollod.core.kernel.event import Event
from apollod.core.kernel.folding import Folds
from apollod.core.rollback.events import RollbackStarted
from apollod.core.state import State


def _dropped(own: AlignmentState, state: State, e: Event, at_ns: int) -> None:
    """One of the two that are compared is gone, or the weights that they were asked about are."""
    own.open = None


def _trainer_attached(own: AlignmentState, state: State, e: TrainerAttached, at_ns: int) -> None:
    own.version = -1


def _started(own: AlignmentState, state: State, e: AlignmentStarted, at_ns: int) -> None:
    own.open, own.opened_ns = e, at_ns


def _measured(own: AlignmentState, state: State, e: AlignmentMeasured, at_ns: int) -> None:
    own.measured, own.version = e, e.step
    if e.aligned:
        own.open = None  # otherwise training halts as soon as it is known where the difference comes from


def _failed(own: AlignmentState, state: State, e: AlignmentFailed, at_ns: int) -> None:
    own.open, own.version = None, e.step


FOLDS: Folds = {
    DaemonStarted: _dropped,
    TrainingHalted: _dropped,
    EngineExited: _dropped,
    TrainerExited: _dropped,
    RollbackStarted: _dropped,
    TrainerAttached: _trainer_attached,
    AlignmentStarted: _started,
    AlignmentMeasured: _measured,
    AlignmentFailed: _failed,
}
