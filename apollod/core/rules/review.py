"""Review: examples that wait for a decision by a person, a judge or expiry. Decisions, folds and status.

Law: a decision that comes too late (the example is learned, or being learned) gives no event; of two people the last
one wins, unless they name the state in which they saw the example, and it has changed.
"""

from collections.abc import Mapping
from itertools import islice, takewhile

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.judging.events import JUDGE
from apollod.core.facts.review import BY_EVIDENCE, Dismissed, Held, ReviewState
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Folds, Handlers
from apollod.core.rules.intake.accepting import accepted, begin_encoding, leaked
from apollod.core.rules.judging.policy import overruled
from apollod.core.schedules import DAY_NS, SECOND_NS, is_due
from apollod.core.shared.places import Place, places_of
from apollod.core.state import State

# --- folds of events into the state ----------------------------------------------------------------------------------


def _held(own: ReviewState, state: State, e: ev.ExampleHeld, at_ns: int) -> None:
    own.recall(e.example)
    own.approved.pop(e.example, None)
    own.held.pop(e.example, None)  # an example held again is the newest
    own.held[e.example] = Held(e.tier, e.reason, e.waits_for, at_ns)


def _approved(own: ReviewState, state: State, e: ev.ExampleApproved, at_ns: int) -> None:
    own.held.pop(e.example, None)
    own.recall(e.example)
    if e.by not in (JUDGE, BY_EVIDENCE):
        own.approved[e.example] = None


def _rated(own: ReviewState, state: State, e: ev.FeedbackGiven, at_ns: int) -> None:
    if e.example:
        own.approved[e.example] = None


def _requeued(own: ReviewState, state: State, e: ev.ExampleRequeued, at_ns: int) -> None:
    own.approved[e.example] = None


def _taken_back(own: ReviewState, state: State, e: ev.ExampleWithdrawn | ev.ForgetRequested, at_ns: int) -> None:
    for example in e.examples:
        own.approved.pop(example, None)


def _carried(own: ReviewState, state: State, e: ev.JournalCarried, at_ns: int) -> None:
    own.approved |= dict.fromkeys(e.approved)


def _declined(own: ReviewState, state: State, e: ev.ExampleDeclined, at_ns: int) -> None:
    own.dismiss(e.example, Dismissed("declined", e.tier, e.by))


def _edited(own: ReviewState, state: State, e: ev.ExampleEdited, at_ns: int) -> None:
    own.dismiss(e.example, Dismissed("edited", e.tier, e.by))


def _expired(own: ReviewState, state: State, e: ev.ExampleExpired, at_ns: int) -> None:
    waiting = {one.example: one.tier for one in islice(state.intake.bulk.waiting, len(e.examples) if e.waiting else 0)}
    for example in e.examples:
        tier = waiting[example] if e.waiting else own.held[example].tier
        own.dismiss(example, Dismissed("expired", tier))


def _step_failed(own: ReviewState, state: State, e: ev.StepFailed, at_ns: int) -> None:
    """Hold the examples of a failed step for a person."""
    if not e.apart:
        for one in state.intake.taken:
            own.held[one.example] = Held(one.tier, f"its step could not be run: {e.reason}", "person", at_ns)


FOLDS: Folds = {
    ev.ExampleHeld: _held,
    ev.ExampleApproved: _approved,
    ev.ExampleDeclined: _declined,
    ev.ExampleEdited: _edited,
    ev.ExampleExpired: _expired,
    ev.ExampleRequeued: _requeued,
    ev.ExampleWithdrawn: _taken_back,
    ev.FeedbackGiven: _rated,
    ev.ForgetRequested: _taken_back,
    ev.JournalCarried: _carried,
    ev.StepFailed: _step_failed,
}
"""Folded before `intake`, which clears the examples of a failed step and expired ones."""


# --- decisions -------------------------------------------------------------------------------------------------------

EXPIRED_MAX = 1000  # examples named by one event

OUT_OF: Mapping[str, frozenset[str]] = {
    "approve": frozenset({"held", "declined", "expired"}),
    "decline": frozenset({"held", "pending", "expired"}),
    "hold": frozenset({"pending", "declined", "edited", "expired"}),
    "edit": frozenset({"held", "pending", "declined", "expired"}),
}
"""States (`core.example_state`) in which each decision about an example is possible."""


def _may(choice: str, place: Place, only_in: str) -> bool:
    """True if this decision is allowed for an example in this place."""
    return place.state in OUT_OF[choice] and only_in in ("", place.state)


def _on_decisions(state: State, input_: inp.DecisionsGiven, now_ns: int) -> Outcome:
    places = places_of(state, (one.example for one in input_.decisions))
    events: list[ev.Event] = []
    approved: list[tuple[str, ev.Tier]] = []
    for one in input_.decisions:
        place = places.pop(one.example, None)
        if place is None or not _may(one.choice, place, one.only_in):
            if input_.together:
                return nothing()
            continue
        example, tier, by = one.example, place.tier, input_.by
        match one.choice:
            case "approve":
                events.append(ev.ExampleApproved(example=example, tier=tier, by=by, reason=one.reason))
                approved.append((example, tier))
            case "decline":
                events.append(ev.ExampleDeclined(example=example, tier=tier, by=by, reason=one.reason))
            case "hold":
                reason = one.reason or f"held by {by}"
                events.append(ev.ExampleHeld(example=example, tier=tier, reason=reason, by=by))
    events += overruled(state, [example for example, _ in approved], input_.by)
    return Outcome(events, begin_encoding(state, approved))


def _on_edit(state: State, input_: inp.EditGiven, now_ns: int) -> Outcome:
    """Accept a person's replacement as a direct correction, which is learned first."""
    line, place = input_.line, places_of(state, [input_.example]).get(input_.example)
    if place is None or not _may("edit", place, input_.only_in):
        return nothing()
    if line.example == input_.example or input_.known or leaked(line):
        return nothing()
    written = accepted(line, f"edit:{input_.example}", "direct")
    edited = ev.ExampleEdited(example=input_.example, tier=place.tier, into=line.example, by=input_.by)
    return Outcome([written, edited], begin_encoding(state, [(line.example, "direct")]))


def advance(state: State, now_ns: int) -> Outcome:
    """Give up examples that waited too long for a decision, or to be learned, the oldest first. Direct corrections
    never expire."""
    settings = state.daemon.settings
    if settings is None or state.daemon.stopping:
        return nothing()
    if days := settings.review.hold_days:
        held = takewhile(lambda one: _is_over(now_ns, one[1].since_ns, days), state.review.held.items())
        if over := tuple(id_ for id_, _ in islice(held, EXPIRED_MAX)):
            return Outcome([ev.ExampleExpired(examples=over, days=days)], [])
    if days := settings.queue.expire_days:
        waiting = takewhile(lambda one: _is_over(now_ns, one.since_ns, days), state.intake.bulk.waiting)
        if over := tuple(one.example for one in islice(waiting, EXPIRED_MAX)):
            return Outcome([ev.ExampleExpired(examples=over, days=days, waiting=True)], [])
    return nothing()


def _is_over(now_ns: int, since_ns: int, days: float) -> bool:
    return is_due(now_ns, since_ns + int(days * DAY_NS), days * DAY_NS / SECOND_NS)


HANDLERS: Handlers = {inp.DecisionsGiven: _on_decisions, inp.EditGiven: _on_edit}
