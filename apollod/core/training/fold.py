"""Folds the events of windows and steps into the state."""

from apollod.core.children.events import TrainerBound, TrainerExited
from apollod.core.daemon.events import DaemonStarted, JournalCarried, JournalContinued, TrainingResumed
from apollod.core.intake.events import ExampleLooked
from apollod.core.kernel.folding import Folds
from apollod.core.rollback.events import RollbackStarted
from apollod.core.state import State
from apollod.core.training.events import (
    StepCompleted,
    StepFailed,
    StepStarted,
    WindowClosed,
    WindowOpened,
    all_examples,
)
from apollod.core.training.pace import KEPT, Pace
from apollod.core.training.state import Running, TrainingCounts, TrainingState, Window


def _daemon_started(own: TrainingState, state: State, e: DaemonStarted, at_ns: int) -> None:
    own.unlearned = 0


def _resumed(own: TrainingState, state: State, e: TrainingResumed, at_ns: int) -> None:
    own.unlearned = 0


def _window_opened(own: TrainingState, state: State, e: WindowOpened, at_ns: int) -> None:
    own.window, own.windows = Window(e.window, e.planned), e.window


def _window_closed(own: TrainingState, state: State, e: WindowClosed, at_ns: int) -> None:
    own.window = None


def _step_started(own: TrainingState, state: State, e: StepStarted, at_ns: int) -> None:
    own.step = e.step
    own.running = Running(e, at_ns)
    if (window := own.window) is not None and not e.again_of:
        window.steps += 1
        window.examples += len(all_examples(e))


def _step_completed(own: TrainingState, state: State, e: StepCompleted, at_ns: int) -> None:
    examples = all_examples(e)
    own.version, own.fingerprint, own.running, own.last_step_ns = e.step, e.fingerprint, None, at_ns
    if not e.applied:
        own.counts.skipped += len(examples)
        own.unlearned += not e.known
        return
    own.counts.trained += len(examples)
    own.unlearned = 0
    own.recent.append(Pace(e.tokens, e.seconds))
    if len(own.recent) > KEPT:
        del own.recent[0]
    if (window := own.window) is not None and e.loss is not None:
        window.losses += 1
        window.loss_total += e.loss


def _looked(own: TrainingState, state: State, e: ExampleLooked, at_ns: int) -> None:
    own.counts.skipped += e.known


def _step_failed(own: TrainingState, state: State, e: StepFailed, at_ns: int) -> None:
    own.running = None
    if not e.apart:
        own.unlearned += 1


def _trainer_bound(own: TrainingState, state: State, e: TrainerBound, at_ns: int) -> None:
    own.fingerprint = own.fingerprint or e.fingerprint


def _trainer_exited(own: TrainingState, state: State, e: TrainerExited, at_ns: int) -> None:
    if own.running is not None and state.children.trainer.phase == "ready" and not e.expected:
        own.running.attempts += 1


def _rollback_started(own: TrainingState, state: State, e: RollbackStarted, at_ns: int) -> None:
    own.version, own.fingerprint, own.unlearned = e.to, e.fingerprint, 0
    own.counts.trained -= len(e.examples)


def _continued(own: TrainingState, state: State, e: JournalContinued, at_ns: int) -> None:
    own.step, own.version, own.fingerprint = e.last_step, e.step, e.fingerprint


def _carried(own: TrainingState, state: State, e: JournalCarried, at_ns: int) -> None:
    own.counts = TrainingCounts(e.trained, e.skipped, e.held)
    own.last_step_ns, own.windows = e.last_step_ns, e.windows
    if (w := e.window) is not None:
        own.window = Window(w.number, w.planned, w.steps, w.examples, w.losses, w.loss_total)


FOLDS: Folds = {
    DaemonStarted: _daemon_started,
    TrainingResumed: _resumed,
    WindowOpened: _window_opened,
    WindowClosed: _window_closed,
    StepStarted: _step_started,
    StepCompleted: _step_completed,
    StepFailed: _step_failed,
    ExampleLooked: _looked,
    TrainerBound: _trainer_bound,
    TrainerExited: _trainer_exited,
    RollbackStarted: _rollback_started,
    JournalContinued: _continued,
    JournalCarried: _carried,
}
