"""Folds the events of checkpoints into the state."""

from apollod.core.checkpoints.events import (
    CheckpointCommitted,
    CheckpointFailed,
    CheckpointRemoved,
    CheckpointStarted,
    HookCompleted,
    HookFailed,
)
from apollod.core.checkpoints.state import CheckpointRef, CheckpointsState
from apollod.core.daemon.events import DaemonStarted
from apollod.core.kernel.folding import Folds
from apollod.core.schedules import CHECKPOINT_RETRY_S, SECOND_NS
from apollod.core.state import State


def _daemon_started(own: CheckpointsState, state: State, e: DaemonStarted, at_ns: int) -> None:
    own.last_one_failed = False


def _started(own: CheckpointsState, state: State, e: CheckpointStarted, at_ns: int) -> None:
    own.open = e


def _committed(own: CheckpointsState, state: State, e: CheckpointCommitted, at_ns: int) -> None:
    own.open = None
    ref = CheckpointRef.of(e, at_ns)
    own.committed = [c for c in own.committed if c.path != e.path] + [ref]
    own.hook_due = ref


def _failed(own: CheckpointsState, state: State, e: CheckpointFailed, at_ns: int) -> None:
    own.open = None
    own.retry_ns = at_ns + int(CHECKPOINT_RETRY_S * SECOND_NS)
    own.last_one_failed = state.daemon.stopping


def _removed(own: CheckpointsState, state: State, e: CheckpointRemoved, at_ns: int) -> None:
    own.committed = [c for c in own.committed if c.path != e.path]
    own.removed = e.path


def _hook_done(own: CheckpointsState, state: State, e: HookCompleted | HookFailed, at_ns: int) -> None:
    due = own.hook_due
    if due is not None and (due.step, due.path) == (e.step, e.path or due.path):
        own.hook_due = None


FOLDS: Folds = {
    DaemonStarted: _daemon_started,
    CheckpointStarted: _started,
    CheckpointCommitted: _committed,
    CheckpointFailed: _failed,
    CheckpointRemoved: _removed,
    HookCompleted: _hook_done,
    HookFailed: _hook_done,
}
