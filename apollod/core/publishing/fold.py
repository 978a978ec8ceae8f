"""Folds the events of fences into the state."""

from apollod.core.children.events import EngineExited, TrainerAttached
from apollod.core.daemon.events import DaemonStarted
from apollod.core.kernel.folding import Folds
from apollod.core.publishing.events import EnginePaused, EngineResumed
from apollod.core.publishing.state import PublishingState
from apollod.core.schedules import SECOND_NS
from apollod.core.state import State
from apollod.core.training.events import StepStarted


def _daemon_started(own: PublishingState, state: State, e: DaemonStarted, at_ns: int) -> None:
    own.engine_paused = False


def _engine_exited(own: PublishingState, state: State, e: EngineExited, at_ns: int) -> None:
    own.engine_paused = False


def _trainer_attached(own: PublishingState, state: State, e: TrainerAttached, at_ns: int) -> None:
    own.fence_expired = False


def _step_started(own: PublishingState, state: State, e: StepStarted, at_ns: int) -> None:
    own.fence_expired = False


def _engine_paused(own: PublishingState, state: State, e: EnginePaused, at_ns: int) -> None:
    own.engine_paused = True


def _engine_resumed(own: PublishingState, state: State, e: EngineResumed, at_ns: int) -> None:
    own.engine_paused, own.fence_expired = False, e.expired
    own.serve_s = e.seconds if e.active else 0.0
    own.serve_until_ns = at_ns + int(own.serve_s * SECOND_NS)


FOLDS: Folds = {
    DaemonStarted: _daemon_started,
    EngineExited: _engine_exited,
    TrainerAttached: _trainer_attached,
    StepStarted: _step_started,
    EnginePaused: _engine_paused,
    EngineResumed: _engine_resumed,
}
