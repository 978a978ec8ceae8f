"""Scores: how much an answer depends on stripped text. Decisions, folds and status.

One example at a time, after everything else that may begin, and beside it: nothing waits for a score.
`supervisor/executor/scoring_effects.py` bounds the engine's time for it. Scored examples are scored once more after
learning, when nothing is being learned, to see if the model now gives the answer without the text.
"""

from collections.abc import Iterable
from typing import Literal

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.facts.scoring import ScoringState
from apollod.core.kernel.composing import composed
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Folds, Handlers
from apollod.core.schedules import NO_FAILURE, backoff_s
from apollod.core.settings import Divergence, Settings
from apollod.core.state import State

# --- folds of events into the state ----------------------------------------------------------------------------------

TWICE_MAX = 1000
"""most examples with both scores that are remembered, in case their steps are taken back"""

Where = Literal["held", "waiting", "out"]
"""State of an example: held for a decision, waiting to be learned, or out of the queue."""


def _mode(state: State) -> Divergence:
    return state.daemon.settings.review.divergence if state.daemon.settings is not None else "off"


def _second_scores(settings: Settings | None) -> int:
    """Most examples that wait for a second score."""
    if settings is None or settings.review.divergence == "off":
        return 0
    return settings.review.divergence_after


def _is_now(own: ScoringState, mode: Divergence, examples: Iterable[str], where: Where) -> None:
    for example in examples:
        wanted = where == "held" if mode == "held" else mode == "all" and where != "out"
        if wanted and example in own.stripped:
            own.candidates[example] = None
        else:
            own.candidates.pop(example, None)


def _forget(own: ScoringState, examples: Iterable[str]) -> None:
    for example in examples:
        own.stripped.pop(example, None)
        own.candidates.pop(example, None)
        own.failed.pop(example, None)


def _daemon_started(own: ScoringState, state: State, e: ev.DaemonStarted, at_ns: int) -> None:
    """Drop the open question, which is asked again, and apply the present choice of examples to score."""
    own.open, own.open_after = "", 0
    own.retry = NO_FAILURE
    if e.settings.review.divergence == "off":
        own.scored = {}
    _keep_some(own, _second_scores(e.settings))
    held, out = state.review.held, state.review.dismissed.keys() | state.intake.withdrawn.keys()
    for example in list(own.stripped):
        where: Where = "held" if example in held else "out" if example in out else "waiting"
        _is_now(own, e.settings.review.divergence, (example,), where)


def _accepted(own: ScoringState, state: State, e: ev.ExampleAccepted, at_ns: int) -> None:
    if e.removed:
        own.stripped[e.example] = None
        _is_now(own, _mode(state), (e.example,), "waiting")


def _held(own: ScoringState, state: State, e: ev.ExampleHeld, at_ns: int) -> None:
    _is_now(own, _mode(state), (e.example,), "held")


def _waits(own: ScoringState, state: State, e: ev.ExampleApproved | ev.ExampleRequeued, at_ns: int) -> None:
    _is_now(own, _mode(state), (e.example,), "waiting")


def _out(own: ScoringState, state: State, e: ev.ExampleDeclined | ev.ExampleEdited, at_ns: int) -> None:
    _is_now(own, _mode(state), (e.example,), "out")


def _all_out(own: ScoringState, state: State, e: ev.ExampleExpired | ev.ExampleWithdrawn, at_ns: int) -> None:
    _is_now(own, _mode(state), e.examples, "out")


def _rejected(own: ScoringState, state: State, e: ev.ExampleRejected, at_ns: int) -> None:
    _forget(own, (e.example,))
    own.scored.pop(e.example, None)


def _step_started(own: ScoringState, state: State, e: ev.StepStarted, at_ns: int) -> None:
    """Forget examples learned without a score: a score after learning would mean something else."""
    if own.stripped:
        _forget(own, ev.all_examples(e))


def _step_completed(own: ScoringState, state: State, e: ev.StepCompleted, at_ns: int) -> None:
    for example in ev.all_examples(e) if own.scored else ():
        if example in own.scored:
            del own.scored[example]
            if e.applied:
                own.learned[example] = e.step
    _keep_some(own, _second_scores(state.daemon.settings))


def _keep_some(own: ScoringState, most: int) -> None:
    """Limit the examples that wait for a second score. Every run keeps the same ones, chosen by the ends of the content
    ids, since reviewed ones are chosen by the beginnings (`core.facts.intake.sampling`)."""
    if len(own.learned) > most:
        kept = sorted(own.learned, key=lambda example: example[::-1])[:most]
        own.learned = {example: own.learned[example] for example in kept}


def _rollback_started(own: ScoringState, state: State, e: ev.RollbackStarted, at_ns: int) -> None:
    """Score undone examples again once they are learned again, and those still learned but scored by weights that are
    gone as soon as there is time."""
    if own.open_after:  # the answer will be of weights that are gone
        own.open, own.open_after = "", 0
    for example in e.examples:
        if own.learned.pop(example, None) or own.twice.pop(example, None):
            own.scored[example] = None
    for example, (step, version) in list(own.twice.items()):
        if version > e.to:
            own.learned[example] = step
            del own.twice[example]


def _requested(own: ScoringState, state: State, e: ev.ScoreRequested, at_ns: int) -> None:
    own.open, own.open_after = e.example, e.after


def _scored(own: ScoringState, state: State, e: ev.ExampleScored, at_ns: int) -> None:
    own.open, own.open_after, own.retry = "", 0, NO_FAILURE
    if e.after:
        own.learned.pop(e.example, None)
        own.twice[e.example] = (e.after, e.weights_version)
        if len(own.twice) > TWICE_MAX:
            del own.twice[next(iter(own.twice))]
    elif e.example in own.stripped:  # else its step has begun
        own.scored[e.example] = None
    _forget(own, (e.example,))


def _failed(own: ScoringState, state: State, e: ev.ScoreFailed, at_ns: int) -> None:
    own.open, own.open_after = "", 0
    if e.given_up:
        _forget(own, (e.example,))
        own.learned.pop(e.example, None)
    elif e.example in own.stripped or e.example in own.learned:
        own.failed[e.example] = e.attempts
    if e.in_a_row:
        own.retry = own.retry.after(at_ns, backoff_s(e.in_a_row), e.in_a_row)


FOLDS: Folds = {
    ev.DaemonStarted: _daemon_started,
    ev.ExampleAccepted: _accepted,
    ev.ExampleHeld: _held,
    ev.ExampleApproved: _waits,
    ev.ExampleRequeued: _waits,
    ev.ExampleDeclined: _out,
    ev.ExampleEdited: _out,
    ev.ExampleExpired: _all_out,
    ev.ExampleWithdrawn: _all_out,
    ev.ExampleRejected: _rejected,
    ev.StepStarted: _step_started,
    ev.StepCompleted: _step_completed,
    ev.RollbackStarted: _rollback_started,
    ev.ScoreRequested: _requested,
    ev.ExampleScored: _scored,
    ev.ScoreFailed: _failed,
}


# --- decisions -------------------------------------------------------------------------------------------------------

ATTEMPTS_MAX = 3
"""attempts after which an example stays without a score"""


def advance(state: State, now_ns: int) -> Outcome:
    """Ask about the first candidate, unless a question is open or the last attempt failed just now."""
    own = state.scoring
    if own.open or blocked(Activity.SCORING, state):
        return nothing()
    example, after = next(((example, 0) for example in own.candidates), ("", 0))
    if not example and own.learned and not blocked(Activity.SECOND_SCORING, state):
        example, after = next(iter(own.learned.items()))
    if not example:
        return nothing()
    if not own.retry.is_due(now_ns):
        return nothing()
    asked = ev.ScoreRequested(example=example, attempt=own.failed.get(example, 0) + 1, after=after)
    return Outcome([asked], [fx.ScoreExample(example, after)])


def _on_done(state: State, input_: inp.ExampleScoreDone, now_ns: int) -> Outcome:
    """Record the score or the failure. Answers to questions of an earlier life, or about a step taken back meanwhile,
    are ignored."""
    own, example = state.scoring, input_.example
    if (own.open, own.open_after) != (example, input_.after):
        return nothing()
    if input_.error:
        attempts = own.failed.get(example, 0) + 1
        failed = ev.ScoreFailed(
            example=example, reason=input_.error, attempts=attempts,
            given_up=not input_.retryable or attempts >= ATTEMPTS_MAX,
            in_a_row=own.retry.failures + 1 if input_.retryable else 0,
        )  # fmt: skip
        return Outcome([failed], [])
    scored = composed(
        ev.ExampleScored, input_, example=example, divergence=input_.with_context - input_.without_context,
    )  # fmt: skip
    return Outcome([scored], [])


HANDLERS: Handlers = {inp.ExampleScoreDone: _on_done}
