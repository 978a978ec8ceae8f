"""The heart: `decide(state, input, now) -> (events, effects)`, a pure function.

Law: the state is read, never changed. The loop appends the events (durable first), folds them, and only then runs the
effects. Effects that are safe to request again and again (starting a child that is down) need no intent event;
everything else is an event first. After every input the loop asks `Advance` until nothing more follows.

Each subject answers for itself; this file defines the order in which they are asked.
"""

from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.rules import (
    alignment,
    bootstrap,
    checkpoints,
    children,
    daemon,
    feedback,
    followups,
    forgetting,
    publishing,
    recovery,
    rescoring,
    review,
    rollback,
    schedule,
    scoring,
    training,
)
from apollod.core.rules.dreams import policy as dreams
from apollod.core.rules.holding import policy as holding
from apollod.core.rules.intake import policy as intake
from apollod.core.rules.judging import policy as judging
from apollod.core.rules.lessons import policy as lessons
from apollod.core.rules.lessons.direct_lines import with_lessons
from apollod.core.rules.quality import incidents, telling
from apollod.core.rules.quality import policy as quality
from apollod.core.state import State

SUBJECTS = (
    daemon, children, intake, review, bootstrap, judging, feedback, recovery, training, checkpoints, rollback,
    publishing, alignment, schedule, scoring, rescoring, followups, dreams, lessons, quality, forgetting, holding,
)  # fmt: skip
"""Order in which subjects answer the same input: a child's end before its consequences."""

BEGINNINGS = (
    holding,
    schedule,
    review,
    bootstrap,
    quality,
    forgetting,
    rollback,
    alignment,
    checkpoints,
    training,
    lessons,
    scoring,
    rescoring,
    judging,
    followups,
    dreams,
)
"""Order in which subjects are asked whether something may begin: the first one with an outcome wins."""


def decide(state: State, input_: inp.Input, now_ns: int) -> Outcome:
    """Decide: the outcome of `input_` at time `now_ns` (nanoseconds since the epoch) in `state`."""
    if isinstance(input_, inp.Advance | inp.Tick):
        outcome = _advance(state, now_ns)
    else:
        outcome = nothing()
        for subject in SUBJECTS:
            if (handler := subject.HANDLERS.get(type(input_))) is not None:
                outcome = outcome.then(handler(state, input_, now_ns))
    return publishing.publish(state, with_lessons(state, outcome, now_ns), now_ns)


def _advance(state: State, now_ns: int) -> Outcome:
    """Begin every activity that may begin by itself, then the children needed for it."""
    if state.daemon.settings is None or state.daemon.stopped:
        return nothing()
    first: list[fx.Effect] = publishing.open_fence(state)
    if not state.daemon.stopping:
        first += checkpoints.run_hook(state)
        first += telling.tell(state, now_ns)
        first += incidents.replay(state, now_ns)
        first += holding.freeze(state, now_ns)
    begun = next((outcome for subject in BEGINNINGS if (outcome := subject.advance(state, now_ns))), nothing())
    outcome = Outcome([], first).then(begun)
    if begun.events and state.daemon.stopping:
        return outcome  # the last checkpoint: no child is stopped before it is written
    outcome = outcome.then(Outcome([], checkpoints.settle(state))).then(children.advance(state, now_ns))
    return outcome.then(daemon.leave(state))
