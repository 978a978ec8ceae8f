"""Folds the events of rollbacks into the state."""

from apollod.core.kernel.folding import Folds
from apollod.core.rollback.events import RollbackCompleted, RollbackRefused, RollbackRequested, RollbackStarted
from apollod.core.rollback.state import RollbackState
from apollod.core.state import State


def _requested(own: RollbackState, state: State, e: RollbackRequested, at_ns: int) -> None:
    own.wanted = e


def _refused(own: RollbackState, state: State, e: RollbackRefused, at_ns: int) -> None:
    own.wanted = None


def _started(own: RollbackState, state: State, e: RollbackStarted, at_ns: int) -> None:
    own.wanted, own.under_way, own.started_ns = None, e, at_ns


def _completed(own: RollbackState, state: State, e: RollbackCompleted, at_ns: int) -> None:
    own.under_way = None


FOLDS: Folds = {
    RollbackRequested: _requested,
    RollbackRefused: _refused,
    RollbackStarted: _started,
    RollbackCompleted: _completed,
}
