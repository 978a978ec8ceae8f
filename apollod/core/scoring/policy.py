"""Chooses the next answer to score, and records its score.

One example at a time, after everything else that may begin, and beside it: nothing waits for a score. How much of the
engine's time it takes is bounded by who asks (`supervisor/executor/scoring_effects.py`). What was scored and then
learned is scored once more when nothing is being learned: does the model say it without being told now?
"""

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Handlers
from apollod.core.state import State

ATTEMPTS_MAX = 3
"""after which an example stays without a score"""


def advance(state: State, now_ns: int) -> Outcome:
    """Ask about the first candidate, unless one is asked about or the last attempt failed just now."""
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
    """The engine's answer, or why there is none. An answer to a question of an earlier life is none, nor is
    one about a step that was taken back meanwhile."""
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
    scored = ev.ExampleScored(
        example=example, with_context=input_.with_context, without_context=input_.without_context,
        divergence=input_.with_context - input_.without_context, tokens=input_.tokens,
        weights_version=input_.weights_version, seconds=input_.seconds, alternate=input_.alternate,
        after=input_.after,
    )  # fmt: skip
    return Outcome([scored], [])


HANDLERS: Handlers = {inp.ExampleScoreDone: _on_done}
