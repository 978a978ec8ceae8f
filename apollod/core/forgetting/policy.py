"""Carry out requests to forget examples: plan, roll back, repeat the other steps, withdraw the examples.

Law: request and outcome are events, with one intent at a time between them; repeated steps are ordinary steps, so that
a crash at any point resumes. An example stays learned, and the refusal names the reason, if the result would not equal
a replay without it to the bit.
"""

from collections.abc import Collection

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.fixed_bits import differing_setting
from apollod.core.forgetting.state import UnderWay, Wish
from apollod.core.forgetting.taking_back import taken_back
from apollod.core.intake.again import family
from apollod.core.intake.encoding import begin_encoding
from apollod.core.kernel.composing import composed
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Handlers
from apollod.core.recovery.environment import differing_choice
from apollod.core.review.places import places_of
from apollod.core.rollback.wishes import begun, request
from apollod.core.schedules import SECOND_NS
from apollod.core.state import State
from apollod.core.training.repeating import next_repeat

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
