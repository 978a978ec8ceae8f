"""Chooses the examples to score again: the newest ones, while nothing waits to be learned.

Each takes one forward pass of the trainer, which gives way to any other request and writes nothing. It rests afterwards
in proportion to the time taken.
"""

from itertools import islice

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Handlers
from apollod.core.kernel.reasons import one_line
from apollod.core.rescoring.state import REST_MAX_S
from apollod.core.schedules import is_due
from apollod.core.state import State

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
