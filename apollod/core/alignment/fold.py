"""How facts change comparisons."""

from apollod.core.alignment.cost import TOKENS
from apollod.core.alignment.events import (
    AlignmentAbandoned,
    AlignmentFailed,
    AlignmentMeasured,
    AlignmentOvertaken,
    AlignmentStarted,
)
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
    own.version = own.whole_version = -1
    own.doubted = False


def _started(own: AlignmentState, state: State, e: AlignmentStarted, at_ns: int) -> None:
    own.open, own.opened_ns, own.beside = e, at_ns, False
    own.count, own.steps_before = max(e.number, own.count), state.training.step


def _overtaken(own: AlignmentState, state: State, e: AlignmentOvertaken, at_ns: int) -> None:
    own.beside = True


def _abandoned(own: AlignmentState, state: State, e: AlignmentAbandoned, at_ns: int) -> None:
    own.open, own.doubted = None, own.doubted or e.doubted


def _measured(own: AlignmentState, state: State, e: AlignmentMeasured, at_ns: int) -> None:
    own.measured = e
    _done(own, e)
    if not e.aligned:
        return  # training halts as soon as it is known where the difference comes from
    own.open = None


def _failed(own: AlignmentState, state: State, e: AlignmentFailed, at_ns: int) -> None:
    _done(own, e)
    own.open = None


def _done(own: AlignmentState, e: AlignmentMeasured | AlignmentFailed) -> None:
    """Nothing more is known of these weights until the next one is due."""
    own.version, own.doubted = e.step, False
    if own.open is None or own.open.tokens in (0, TOKENS):
        own.whole_version = e.step


FOLDS: Folds = {
    DaemonStarted: _dropped,
    TrainingHalted: _dropped,
    EngineExited: _dropped,
    TrainerExited: _dropped,
    RollbackStarted: _dropped,
    TrainerAttached: _trainer_attached,
    AlignmentStarted: _started,
    AlignmentOvertaken: _overtaken,
    AlignmentAbandoned: _abandoned,
    AlignmentMeasured: _measured,
    AlignmentFailed: _failed,
}
