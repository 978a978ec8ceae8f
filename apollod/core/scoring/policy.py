"""Chooses the next answer to score, and records its score.

One example at a time, after everything else that may begin, and beside it: nothing waits for a score.
`supervisor/executor/scoring_effects.py` bounds the engine's time for it. Scored examples are scored once more after
learning, when nothing is being learned, to see if the model now gives the answer without the text.
"""

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.kernel.composing import composed
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Handlers
from apollod.core.state import State

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
