"""Fold events into the examples that are scored again, and their scores."""

from itertools import islice

from apollod.core.children.events import TrainerExited
from apollod.core.daemon.events import DaemonStarted
from apollod.core.kernel.folding import Folds
from apollod.core.lessons.events import ExampleReplaced
from apollod.core.rescoring.events import ExamplesRescored, RescoreRequested
from apollod.core.rescoring.state import REST_MAX_S, REST_MIN_S, Gain, Lately, RescoringState
from apollod.core.rollback.events import RollbackStarted
from apollod.core.schedules import SECOND_NS
from apollod.core.settings import Settings
from apollod.core.state import State
from apollod.core.training.events import StepCompleted

GAINS_MAX = 1000
"""most lines whose figures are kept in the state; all are in the journal"""
LESSON = "lesson:"
"""prefix of the sources of practices, which are not scored: a lesson is tested by its answers"""


def _daemon_started(own: RescoringState, state: State, e: DaemonStarted, at_ns: int) -> None:
    own.open, own.retry_ns = (), 0
    _keep_newest(own, e.settings)


def _trainer_exited(own: RescoringState, state: State, e: TrainerExited, at_ns: int) -> None:
    """Drop the examples that were being scored when the trainer crashed."""
    if not e.expected:
        for example in own.open:
            own.waiting.pop(example, None)
    own.open = ()


def _step_completed(own: RescoringState, state: State, e: StepCompleted, at_ns: int) -> None:
    """Add the examples that the step learned from their own tokens. `state`: before this event."""
    running = state.training.running
    if not e.applied or e.loss is None or running is None or running.begun.objective != "sft":
        return
    losses = e.losses or ((e.loss,) if not e.examples else ())  # old journals have only one loss for several examples
    for one, before in zip(state.intake.taken, losses, strict=False):
        own.waiting.pop(one.example, None)
        own.gains.pop(one.example, None)
        replaced = one.example in state.lessons.replaced
        if one.tier != "dream" and not one.kin.source.startswith(LESSON) and not replaced:
            own.waiting[one.example] = Lately(e.step, before, one.digest)
    _keep_newest(own, state.daemon.settings)


def _keep_newest(own: RescoringState, settings: Settings | None) -> None:
    most = settings.trainer.rescore if settings is not None else 0
    for example in list(islice(own.waiting, max(0, len(own.waiting) - most))):
        del own.waiting[example]


def _rollback_started(own: RescoringState, state: State, e: RollbackStarted, at_ns: int) -> None:
    """Score examples again that are still learned but were scored by weights that are gone."""
    own.open = ()
    for example in e.examples:
        own.waiting.pop(example, None)
        own.gains.pop(example, None)
    for example, gain in list(own.gains.items()):
        if gain.version > e.to:
            own.waiting[example] = gain.learned
            del own.gains[example]
    _keep_newest(own, state.daemon.settings)


def _requested(own: RescoringState, state: State, e: RescoreRequested, at_ns: int) -> None:
    own.open, own.number, own.version = e.examples, e.number, e.step


def _rescored(own: RescoringState, state: State, e: ExamplesRescored, at_ns: int) -> None:
    own.open = ()
    for one in e.scores:
        learned = own.waiting.pop(one.example, None)
        if learned is not None and one.after is not None:
            own.gains[one.example] = Gain(learned, one.after, e.step)
    for example in list(islice(own.gains, max(0, len(own.gains) - GAINS_MAX))):
        del own.gains[example]
    share = state.daemon.settings.trainer.rescore_share if state.daemon.settings is not None else 1.0
    rest_s = min(REST_MAX_S, max(REST_MIN_S, e.seconds * (1.0 / share - 1.0)))
    own.retry_ns = at_ns + int(rest_s * SECOND_NS)


def _example_replaced(own: RescoringState, state: State, e: ExampleReplaced, at_ns: int) -> None:
    """Drop an example that was replaced: its gain does not count any more, and it is not scored again."""
    own.waiting.pop(e.example, None)
    own.gains.pop(e.example, None)


FOLDS: Folds = {
    ExampleReplaced: _example_replaced,
    DaemonStarted: _daemon_started,
    TrainerExited: _trainer_exited,
    StepCompleted: _step_completed,
    RollbackStarted: _rollback_started,
    RescoreRequested: _requested,
    ExamplesRescored: _rescored,
}
