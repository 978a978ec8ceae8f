"""Rescoring: the loss of lines before their step, and again afterwards. Decisions, folds and status.

Each takes one forward pass of the trainer, which gives way to any other request and writes nothing. It rests afterwards
in proportion to the time taken.
"""

from itertools import islice

import msgspec

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.facts.rescoring import REST_MAX_S, REST_MIN_S, Gain, Lately, RescoringState, gained
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Folds, Handlers
from apollod.core.kernel.reasons import one_line
from apollod.core.schedules import SECOND_NS, is_due
from apollod.core.settings import Settings
from apollod.core.state import State

# --- folds of events into the state ----------------------------------------------------------------------------------

GAINS_MAX = 1000
"""most lines whose figures are kept in the state; all are in the journal"""
LESSON = "lesson:"
"""prefix of the sources of practices, which are not scored: a lesson is tested by its answers"""


def _daemon_started(own: RescoringState, state: State, e: ev.DaemonStarted, at_ns: int) -> None:
    own.open, own.retry_ns = (), 0
    _keep_newest(own, e.settings)


def _trainer_exited(own: RescoringState, state: State, e: ev.TrainerExited, at_ns: int) -> None:
    """Drop the examples that were being scored when the trainer crashed."""
    if not e.expected:
        for example in own.open:
            own.waiting.pop(example, None)
    own.open = ()


def _step_completed(own: RescoringState, state: State, e: ev.StepCompleted, at_ns: int) -> None:
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


def _rollback_started(own: RescoringState, state: State, e: ev.RollbackStarted, at_ns: int) -> None:
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


def _requested(own: RescoringState, state: State, e: ev.RescoreRequested, at_ns: int) -> None:
    own.open, own.number, own.version = e.examples, e.number, e.step


def _rescored(own: RescoringState, state: State, e: ev.ExamplesRescored, at_ns: int) -> None:
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


def _example_replaced(own: RescoringState, state: State, e: ev.ExampleReplaced, at_ns: int) -> None:
    """Drop an example that was replaced: its gain does not count any more, and it is not scored again."""
    own.waiting.pop(e.example, None)
    own.gains.pop(e.example, None)


FOLDS: Folds = {
    ev.ExampleReplaced: _example_replaced,
    ev.DaemonStarted: _daemon_started,
    ev.TrainerExited: _trainer_exited,
    ev.StepCompleted: _step_completed,
    ev.RollbackStarted: _rollback_started,
    ev.RescoreRequested: _requested,
    ev.ExamplesRescored: _rescored,
}


# --- decisions -------------------------------------------------------------------------------------------------------

AT_ONCE = 8
"""most examples of one request"""


def advance(state: State, now_ns: int) -> Outcome:
    """Ask for the next scores, unless a request is open or the trainer rests."""
    own = state.rescoring
    if (
        own.open
        or not own.waiting
        or blocked(Activity.RESCORING, state)
        or not is_due(now_ns, own.retry_ns, REST_MAX_S)
    ):
        return nothing()
    examples = tuple(islice(reversed(own.waiting), AT_ONCE))
    number = own.number + 1
    asked = ev.RescoreRequested(number=number, examples=examples, step=state.training.version)
    return Outcome([asked], [fx.RescoreExamples(number, examples, tuple(own.waiting[one].digest for one in examples))])


def _on_scored(state: State, input_: inp.ExamplesScored, now_ns: int) -> Outcome:
    """Record the scores, unless the weights were taken back meanwhile."""
    own = state.rescoring
    if not own.open or input_.number != own.number:
        return nothing()
    said = {one.example: one for one in input_.scores}
    if input_.error:
        missing = inp.ScoredAgain("", None, reason=one_line(input_.error))
        said = {one: said.get(one, missing) for one in own.open}
    scores = tuple(
        ev.Rescored(
            example=one, learned_in=lately.step, before=lately.before, after=said[one].loss, tokens=said[one].tokens,
            reason=one_line(said[one].reason),
        )
        for one in own.open
        if one in said and (lately := own.waiting.get(one)) is not None
    )  # fmt: skip
    done = ev.ExamplesRescored(number=own.number, step=own.version, scores=scores, seconds=input_.seconds)
    return Outcome([done], [])


HANDLERS: Handlers = {inp.ExamplesScored: _on_scored}


# --- status ----------------------------------------------------------------------------------------------------------


class Learned(msgspec.Struct, frozen=True, kw_only=True):
    """Gain by learning, on the lines last scored again, see [trainer] rescore."""

    scored: int = 0
    waiting: int = 0
    """lines to be scored again when nothing waits to be learned"""
    before: float | None = None
    """mean loss before learning, nats a token; null: none was scored"""
    after: float | None = None
    """mean loss when they were scored again"""
    weak: int = 0
    """number of these that hardly improved: loss above 0.5 and less than a tenth below its value before"""


def status(state: State) -> Learned:
    """Figures of the lines last scored again, if their steps were not taken back."""
    own = state.rescoring
    if (found := gained(own.gains.values())) is None:
        return Learned(waiting=len(own.waiting))
    return Learned(
        scored=found.scored, waiting=len(own.waiting), before=round(found.before, 4), after=round(found.after, 4),
        weak=found.weak,
    )  # fmt: skip
