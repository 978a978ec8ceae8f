"""Folds the events of engine and trainer processes into the state."""

from apollod.core.children.events import (
    EngineExited,
    EngineReady,
    EngineSpawned,
    TrainerAttached,
    TrainerBound,
    TrainerExited,
    TrainerSpawned,
)
from apollod.core.children.state import Child, ChildrenState
from apollod.core.daemon.events import DaemonStarted, TrainingResumed
from apollod.core.kernel.folding import Folds
from apollod.core.rollback.events import RollbackRequested, RollbackStarted
from apollod.core.schedules import NO_FAILURE
from apollod.core.state import State
from apollod.core.training.events import StepFailed


def _daemon_started(own: ChildrenState, state: State, e: DaemonStarted, at_ns: int) -> None:
    own.engine, own.trainer, own.engine_facts, own.bound, own.engine_fresh = Child(), Child(), None, None, False


def _engine_spawned(own: ChildrenState, state: State, e: EngineSpawned, at_ns: int) -> None:
    own.engine.spawned(e.pid, at_ns)
    own.engine_facts, own.engine_dir = None, e.model_dir


def _engine_ready(own: ChildrenState, state: State, e: EngineReady, at_ns: int) -> None:
    own.engine.phase, own.engine.error, own.engine.refusals = "ready", "", 0
    own.engine_facts, own.engine_fresh = e, True


def _engine_exited(own: ChildrenState, state: State, e: EngineExited, at_ns: int) -> None:
    outlived = own.outlived
    own.engine.exited(at_ns, e.reason, e.refused, e.expected)
    own.engine_facts, own.engine_fresh = None, False
    if state.daemon.stopping and outlived:
        return  # the last checkpoint is written meanwhile
    own.bound = None
    if own.trainer.phase != "absent":
        # Its views point into memory of an engine that is gone.
        own.trainer.phase, own.trainer.doomed = "spawned", True


def _trainer_spawned(own: ChildrenState, state: State, e: TrainerSpawned, at_ns: int) -> None:
    own.trainer.spawned(e.pid, at_ns)
    own.bound = None


def _trainer_bound(own: ChildrenState, state: State, e: TrainerBound, at_ns: int) -> None:
    own.bound, own.engine_fresh = e, False


def _trainer_attached(own: ChildrenState, state: State, e: TrainerAttached, at_ns: int) -> None:
    own.trainer.phase, own.trainer.error, own.state_bytes = "ready", "", e.state_bytes


def _trainer_exited(own: ChildrenState, state: State, e: TrainerExited, at_ns: int) -> None:
    own.trainer.exited(at_ns, e.reason, e.refused, e.expected)
    own.bound = None


def _resumed(own: ChildrenState, state: State, e: TrainingResumed, at_ns: int) -> None:
    if state.daemon.halted and own.trainer.phase != "absent":
        # Its memory cannot be trusted: ask it nothing more.
        own.trainer.phase, own.trainer.doomed = "spawned", True
    for child in (own.engine, own.trainer):
        child.given_up, child.retry, child.refusals, child.crashes_ns = False, NO_FAILURE, 0, []


def _step_failed(own: ChildrenState, state: State, e: StepFailed, at_ns: int) -> None:
    attempts = e.attempts
    if own.trainer.phase == "ready":  # the last attempt was refused with a reason, no crash
        attempts -= 1
        if e.torn:  # it is about to leave, and takes no more steps
            own.trainer.phase, own.trainer.doomed = "spawned", True
    own.trainer.absolved(attempts)


def _rollback_requested(own: ChildrenState, state: State, e: RollbackRequested, at_ns: int) -> None:
    if state.daemon.halted and own.trainer.phase != "absent":
        own.trainer.doomed = True


def _rollback_started(own: ChildrenState, state: State, e: RollbackStarted, at_ns: int) -> None:
    own.trainer.given_up, own.trainer.crashes_ns, own.trainer.retry = False, [], NO_FAILURE
    if own.trainer.phase == "ready":
        own.trainer.phase = "spawned"


FOLDS: Folds = {
    DaemonStarted: _daemon_started,
    EngineSpawned: _engine_spawned,
    EngineReady: _engine_ready,
    EngineExited: _engine_exited,
    TrainerSpawned: _trainer_spawned,
    TrainerBound: _trainer_bound,
    TrainerAttached: _trainer_attached,
    TrainerExited: _trainer_exited,
    TrainingResumed: _resumed,
    StepFailed: _step_failed,
    RollbackRequested: _rollback_requested,
    RollbackStarted: _rollback_started,
}
