"""The heart: `decide(state, input, now) -> (events, effects)`, a pure function.

Law: the state is read, never changed. The loop appends the events (durable first), folds them, and only then runs the
effects. Effects that are safe to request again and again (starting a child that is down) need no intent event;
everything else is an event first. After every input the loop asks `Advance` until nothing more follows.

Each subject answers for itself; this file defines the order in which they are asked.
"""

from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.core.alignment import policy as alignment
from apollod.core.bootstrap import policy as bootstrap
from apollod.core.checkpoints import policy as checkpoints
from apollod.core.children import policy as children
from apollod.core.daemon import policy as daemon
from apollod.core.dreams import policy as dreams
from apollod.core.feedback import policy as feedback
from apollod.core.followups import policy as followups
from apollod.core.forgetting import policy as forgetting
from apollod.core.holding import policy as holding
from apollod.core.intake import policy as intake
from apollod.core.judging import policy as judging
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.lessons import policy as lessons
from apollod.core.lessons.direct_lines import with_lessons
from apollod.core.publishing import policy as publishing
from apollod.core.quality import incidents, telling
from apollod.core.quality import policy as quality
from apollod.core.recovery import policy as recovery
from apollod.core.rescoring import policy as rescoring
from apollod.core.review import policy as review
from apollod.core.rollback import policy as rollback
from apollod.core.schedule import policy as schedule
from apollod.core.scoring import policy as scoring
from apollod.core.state import State
from apollod.core.training import policy as training

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
