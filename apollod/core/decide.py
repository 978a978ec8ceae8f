"""The heart: `decide(state, input, now) -> (events, effects)`, a pure function.

Law: the state is read, never changed. The loop appends the events (durable first), folds them, and only then runs the
effects. Effects that are safe to request again and again (starting a child that is down) need no intent event;
everything else is an event first. After every input the loop asks `Advance` until nothing more follows.

Each subject answers for itself, in the order of `core.subjects`.
"""

from apollod.core import inputs as inp
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.rules import publishing
from apollod.core.rules.lessons.policy import with_lessons
from apollod.core.state import State
from apollod.core.subjects import BEGINNINGS, SUBJECTS


def decide(state: State, input_: inp.Input, now_ns: int) -> Outcome:
    """Decide: the outcome of `input_` at time `now_ns` (nanoseconds since the epoch) in `state`."""
    if isinstance(input_, inp.Advance | inp.Tick):
        outcome = _advance(state, now_ns)
    else:
        outcome = nothing()
        for subject in SUBJECTS:
            if (handler := subject.handlers.get(type(input_))) is not None:
                outcome = outcome.then(handler(state, input_, now_ns))
    return publishing.publish(state, with_lessons(state, outcome, now_ns), now_ns)


def _advance(state: State, now_ns: int) -> Outcome:
    """Begin every activity that may begin by itself, then the children needed for it."""
    if state.daemon.settings is None or state.daemon.stopped:
        return nothing()
    repeated = [effect for subject in SUBJECTS if subject.repeat for effect in subject.repeat(state, now_ns)]
    begun = next((outcome for begin in BEGINNINGS if (outcome := begin(state, now_ns))), nothing())
    outcome = Outcome([], repeated).then(begun)
    if begun.events and state.daemon.stopping:
        return outcome  # the last checkpoint: no child is stopped before it is written
    for subject in SUBJECTS:
        if subject.close:
            outcome = outcome.then(subject.close(state, now_ns))
    return outcome
