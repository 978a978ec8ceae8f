"""Forgetting: learned examples are removed from the weights. Decisions, folds and status. The weights are rolled back
to before an example was learned, and later steps repeated without it: the result equals `apollod replay --without`
to the bit (docs/decisions/0025).

Law: request and outcome are events, with one intent at a time between them; repeated steps are ordinary steps, so that
a crash at any point resumes. An example stays learned, and the refusal names the reason, if the result would not equal
a replay without it to the bit.
"""

from collections.abc import Callable, Collection, Mapping

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.facts.forgetting import ForgettingState, UnderWay, Wish
from apollod.core.facts.recovery import differing_choice
from apollod.core.facts.training import Learned
from apollod.core.fixed_bits import differing_setting
from apollod.core.kernel.composing import composed
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Folds, Handlers
from apollod.core.rules.intake.accepting import begin_encoding, family
from apollod.core.rules.rollback import NotRead, begun, differing, request
from apollod.core.schedules import SECOND_NS
from apollod.core.shared.places import places_of, taken_back
from apollod.core.shared.repeating import next_repeat
from apollod.core.state import State

# --- plan ------------------------------------------------------------------------------------------------------------
# Plan a forgetting from the journal: the steps that learned the examples, and those to repeat without them.


def plan(
    started: Mapping[int, ev.StepStarted],
    completed: Mapping[int, ev.StepCompleted],
    settings_of: Callable[[int], ev.Settings],
    bound_of: Callable[[int], ev.TrainerBound | None],
    tiers_of: Callable[[Collection[str]], Mapping[str, ev.Tier]],
    wanted: Collection[str],
    version: int,
    most: int,
    begins: int = 0,
) -> inp.ForgetPlanned:
    """Search from step `version` back along its parents, at most `most` steps and not beyond step `begins`, until all
    `wanted` examples are found; the others are in `far`. Raises NotRead if a step is missing."""
    left, passed, first, step = set(wanted), list[ev.StepCompleted](), 0, version
    while left and step > begins and len(passed) < most:
        if step not in completed or step not in started:
            raise NotRead(step)
        passed.append(done := completed[step])
        if done.applied and not left.isdisjoint(examples := ev.all_examples(done)):
            left -= set(examples)
            first = len(passed)
        step = done.parent
    way, found = [done for done in passed[:first] if done.applied][::-1], set(wanted) - left
    # Skip steps that wrote nothing: `apollod replay --without` skips them as well.
    if not found:
        return inp.ForgetPlanned(version, far=_in_order(wanted, left))
    tiers = tiers_of([ev.all_examples(done)[0] for done in way])
    learned = [Learned.of(started[done.step], tiers.get(ev.all_examples(done)[0], "bulk")) for done in way]
    step_of = {example: one.step for one in learned for example in one.examples if example in found}
    again = tuple(rest for one in learned if (rest := one.without(found)).examples)
    made_with = [settings_of(one.step) for one in again]
    ran_on = [bound.versions if (bound := bound_of(one.step)) else {} for one in again]
    name = differing(made_with, ran_on)
    return inp.ForgetPlanned(
        version, tuple(step_of), tuple(step_of.values()), passed[first - 1].parent, again,
        made_with[0] if made_with else None, dict(ran_on[0]) if ran_on else {}, far=_in_order(wanted, left),
        error=f"the steps since it was learned were made with several {name}" if name else "",
    )  # fmt: skip


def _in_order(wanted: Collection[str], among: Collection[str]) -> tuple[str, ...]:
    return tuple(one for one in wanted if one in among)


# --- folds of events into the state ----------------------------------------------------------------------------------


def _requested(own: ForgettingState, state: State, e: ev.ForgetRequested, at_ns: int) -> None:
    for example in e.examples:
        own.refused.pop(example, None)
        own.wanted[example] = Wish(e.by, e.reason)


def _started(own: ForgettingState, state: State, e: ev.ForgetStarted, at_ns: int) -> None:
    wishes = {example: own.wanted.pop(example, Wish("", "")) for example in e.examples}
    own.number, own.under_way = e.number, UnderWay(e.number, wishes, e.steps, e.to, e.again, at_ns)


def _fold_refused(own: ForgettingState, state: State, e: ev.ForgetRefused, at_ns: int) -> None:
    under_way = own.under_way
    if under_way is not None and under_way.phase == "stuck":
        own.wanted, own.under_way = under_way.wishes | own.wanted, None
    for example in e.examples:
        own.wanted.pop(example, None)
        own.refused[example] = e.reason


def _completed(own: ForgettingState, state: State, e: ev.ForgetCompleted, at_ns: int) -> None:
    for example in e.examples:
        own.wanted.pop(example, None)
    if e.number:
        own.under_way = None
        own.forgotten += len(e.examples)


def _rated(own: ForgettingState, state: State, e: ev.FeedbackGiven, at_ns: int) -> None:
    """A request to learn an example again cancels an open request to forget it."""
    own.wanted.pop(e.example, None)
    own.refused.pop(e.example, None)


def _rollback_refused(own: ForgettingState, state: State, e: ev.RollbackRefused, at_ns: int) -> None:
    one = own.under_way
    if one is not None and one.phase == "back" and one.to == e.to:
        one.phase, one.reason = "stuck", e.reason


def _rolled_back(own: ForgettingState, state: State, e: ev.RollbackCompleted, at_ns: int) -> None:
    one = own.under_way
    if one is not None and one.phase == "back" and one.to == e.to:
        one.phase = "again"


def _step_started(own: ForgettingState, state: State, e: ev.StepStarted, at_ns: int) -> None:
    one = own.under_way
    if one is not None and e.again_of:
        one.again = tuple(step for step in one.again if step.number > e.again_of)
        one.repeated += 1


FOLDS: Folds = {
    ev.ForgetRequested: _requested,
    ev.ForgetStarted: _started,
    ev.ForgetRefused: _fold_refused,
    ev.ForgetCompleted: _completed,
    ev.FeedbackGiven: _rated,
    ev.RollbackRefused: _rollback_refused,
    ev.RollbackCompleted: _rolled_back,
    ev.StepStarted: _step_started,
}


# --- decisions -------------------------------------------------------------------------------------------------------

FORGET = "forget"
"""Requester named in the rollback request."""


def advance(state: State, now_ns: int) -> Outcome:
    """Ask for a plan for the open requests, or continue the intent under way."""
    own, settings = state.forgetting, state.daemon.settings
    if settings is None or state.daemon.stopping:
        return nothing()
    if own.under_way is not None:
        return _go_on(state, own.under_way, now_ns)
    if not own.wanted or blocked(Activity.FORGETTING, state):
        return nothing()
    return Outcome([], [fx.PlanForget(tuple(own.wanted), state.training.version, settings.review.forget_steps)])


def _go_on(state: State, one: UnderWay, now_ns: int) -> Outcome:
    if one.phase == "stuck":
        return Outcome([_refused(one.longest_ago, one.reason)], [])
    if one.phase == "back" or state.training.running is not None or next_repeat(state) is not None:
        return nothing()
    return _done(state, one, now_ns)


def _done(state: State, one: UnderWay, now_ns: int, reason: str = "") -> Outcome:
    """Withdraw the examples, except those that a person has asked to learn since; with a `reason` the remaining steps
    are not repeated."""
    events: list[ev.Event] = []
    out = {example: wish for example, wish in one.wishes.items() if example in state.intake.undone}
    again = [example for example in out if example in state.review.approved]  # approved while it was being forgotten
    for wish in dict.fromkeys(out.values()):
        examples = tuple(example for example, its in out.items() if its == wish and example not in again)
        if examples:
            events.append(ev.ExampleWithdrawn(examples=examples, by=wish.by, reason=wish.reason))
    events += [ev.ExampleRequeued(example=example, tier="direct", by="rating") for example in again]
    seconds = max(0, now_ns - one.since_ns) / SECOND_NS
    completed = ev.ForgetCompleted(
        examples=tuple(one.wishes), fingerprint=state.training.fingerprint, number=one.number,
        repeated=one.repeated, left=len(one.again) if reason else 0, reason=reason, seconds=seconds,
    )  # fmt: skip
    return Outcome([*events, completed], begin_encoding(state, [(example, "direct") for example in again]))


def _on_requested(state: State, input_: inp.ForgetRequested, now_ns: int) -> Outcome:
    """Keep only examples that no other decision covers; examples that repeat them are forgotten with them."""
    reason = input_.reason or "it is to be forgotten"
    wishes = dict.fromkeys(family(state.intake.again, input_.examples), Wish(input_.by, reason))
    places = places_of(state, wishes)
    waiting = [one for one in wishes if one not in input_.examples and one in places and places[one].state == "pending"]
    events: list[ev.Event] = [ev.ExampleWithdrawn(examples=(one,), by=input_.by, reason=reason) for one in waiting]
    return Outcome([*events, *taken_back(state, wishes, places, again=True)], [])


def _on_planned(state: State, input_: inp.ForgetPlanned, now_ns: int) -> Outcome:
    """Start the planned rollback or refuse with a reason; requests made since are planned again."""
    own, settings = state.forgetting, state.daemon.settings
    if settings is None or own.under_way is not None or input_.version != state.training.version:
        return nothing()
    if blocked(Activity.FORGETTING, state):
        return nothing()
    if not (input_.examples or input_.far or input_.absent):
        return Outcome([_refused(own.wanted, input_.error)], [])
    events: list[ev.Event] = []
    if absent := _wanted(state, input_.absent):
        waiting = {one for one, place in places_of(state, absent).items() if place.state == "pending"}
        events += [
            ev.ExampleWithdrawn(examples=(one,), by=own.wanted[one].by, reason=own.wanted[one].reason)
            for one in absent
            if one in state.intake.undone or one in waiting  # a rollback was faster, or its step failed
        ]
        said = "no step of these weights learned it"
        events.append(ev.ForgetCompleted(examples=absent, fingerprint=state.training.fingerprint, reason=said))
    if far := _wanted(state, input_.far):
        most = f"it was learned more than {settings.review.forget_steps} steps ago ([review] forget_steps)"
        events.append(_refused(far, most))
    if not input_.examples or not own.wanted.keys() >= set(input_.examples):
        return Outcome(events, [])
    if why := input_.error or _changed(state, input_):  # examples learned later may still be possible
        first = [one for one, step in zip(input_.examples, input_.steps, strict=True) if step == input_.steps[0]]
        return Outcome([*events, _refused(first, why)], [])
    started = composed(ev.ForgetStarted, input_, number=own.number + 1, from_step=input_.version)
    return Outcome([*events, started], []).then(request(state, input_.to, FORGET))


def _wanted(state: State, examples: Collection[str]) -> tuple[str, ...]:
    return tuple(example for example in examples if example in state.forgetting.wanted)


def _refused(examples: Collection[str], reason: str) -> ev.ForgetRefused:
    return ev.ForgetRefused(examples=tuple(examples), reason=reason)


def _changed(state: State, plan: inp.ForgetPlanned) -> str:
    """Reason why repeated steps would give other bits (settings or environment changed since); empty: none."""
    bound = state.children.bound
    name = differing_setting(plan.made_with, state.daemon.settings) if plan.again else None
    name = name or (differing_choice(plan.ran_on, bound.versions) if plan.again and bound else None)
    return f"the steps since it was learned were made with another [trainer] {name}" if name else ""


def _on_rollback(state: State, input_: inp.RollbackPlanned, now_ns: int) -> Outcome:
    """End the intent when a person rolls back or restores meanwhile: the remaining steps stay rolled back."""
    one, wanted = state.forgetting.under_way, state.rollback.wanted
    if one is None or one.phase != "again" or not isinstance(begun(state, input_), ev.RollbackStarted):
        return nothing()
    assert wanted is not None
    return _done(state, one, now_ns, f"{wanted.by} wants the weights of step {wanted.to}")


HANDLERS: Handlers = {
    inp.ForgetRequested: _on_requested,
    inp.ForgetPlanned: _on_planned,
    inp.RollbackPlanned: _on_rollback,
}
