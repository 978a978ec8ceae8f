"""Folds the events of comparisons into the state."""

from apollod.core.alignment.bounds import REMEMBERED
from apollod.core.alignment.events import (
    AlignmentAbandoned,
    AlignmentCompared,
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
    """Drop the comparison: one of the two processes is gone, or the compared weights are."""
    own.open = None


def _trainer_attached(own: AlignmentState, state: State, e: TrainerAttached, at_ns: int) -> None:
    own.version = own.whole_version = -1
    own.doubted, own.looked = False, []


def _started(own: AlignmentState, state: State, e: AlignmentStarted, at_ns: int) -> None:
    own.open, own.opened_ns, own.beside = e, at_ns, False
    own.count, own.steps_before = max(e.number, own.count), state.training.step


def _overtaken(own: AlignmentState, state: State, e: AlignmentOvertaken, at_ns: int) -> None:
    own.beside = True


def _abandoned(own: AlignmentState, state: State, e: AlignmentAbandoned, at_ns: int) -> None:
    if own.comparing:
        own.whole_version = -1
    own.open, own.doubted = None, own.doubted or e.doubted


def _measured(own: AlignmentState, state: State, e: AlignmentMeasured, at_ns: int) -> None:
    own.measured = e
    _done(own, e)
    if not e.aligned or e.compares:
        return  # the tensors are compared next
    _expected(own, e)
    own.open = None


def _compared(own: AlignmentState, state: State, e: AlignmentCompared, at_ns: int) -> None:
    own.looked = [*own.looked, e.step]
    if e.differing:
        return  # training halts
    own.same = e.step
    if own.measured is not None and own.measured.aligned:
        _expected(own, own.measured)
    own.open = None


def _expected(own: AlignmentState, e: AlignmentMeasured) -> None:
    """Keep the mean of a passed comparison over the whole text as baseline for the next ones."""
    if own.open is None or not own.open.whole:
        return
    past = own.past if own.past_probe == e.probe else []
    own.past, own.past_probe = [*past, e.mean_abs_diff][-REMEMBERED:], e.probe


def _failed(own: AlignmentState, state: State, e: AlignmentFailed, at_ns: int) -> None:
    if own.comparing:
        own.looked = [*own.looked, e.step]
    _done(own, e)
    own.open = None


def _done(own: AlignmentState, e: AlignmentMeasured | AlignmentFailed) -> None:
    """Mark these weights as compared until the next comparison is due."""
    own.version, own.doubted = e.step, False
    if own.open is None or own.open.whole:
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
    AlignmentCompared: _compared,
    AlignmentFailed: _failed,
}
