"""Ratings of answers that the engine gave. Decisions, folds and status. `intake` adds and removes the examples that
follow from them.

Law: the last rating holds; the same rating again changes nothing. Examples learned because of earlier ratings are
forgotten (`core.rules.forgetting`).
"""

import msgspec

from apollod.core import events as ev
from apollod.core.facts.daemon import JournalCarried
from apollod.core.facts.feedback import FeedbackGiven, FeedbackState, Rated
from apollod.core.facts.forgetting import Wish
from apollod.core.kernel.composing import composed
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Folds, Handlers
from apollod.core.rules.intake.accepting import accepted, begin_encoding, family, held_for_leak, leaked
from apollod.core.rules.judging.policy import overruled
from apollod.core.shared.places import places_of, taken_back
from apollod.core.state import State

# --- folds of events into the state ----------------------------------------------------------------------------------


def _given(own: FeedbackState, state: State, e: FeedbackGiven, at_ns: int) -> None:
    own.rated += not e.replaces


def _carried(own: FeedbackState, state: State, e: JournalCarried, at_ns: int) -> None:
    own.rated = e.rated


FOLDS: Folds = {FeedbackGiven: _given, JournalCarried: _carried}
"""Examples that follow from a rating have events of their own."""


# --- decisions -------------------------------------------------------------------------------------------------------

SOURCE = "feedback"


def _on_rated(state: State, input_: Rated, now_ns: int) -> Outcome:
    if not input_.is_news:
        return nothing()
    wanted, before = input_.example, input_.previous
    named = [one for one in (*input_.formers, input_.learned or "") if one and one != wanted]
    others = family(state.intake.again, named)
    places = places_of(state, others)
    reason = f"its answer was rated {input_.rating}"
    events: list[ev.Event] = [
        ev.ExampleDeclined(example=other, tier=place.tier, by=input_.by, reason=reason)
        for other in others
        if (place := places.get(other)) is not None and place.state in ("held", "pending")
    ]
    events += taken_back(state, {other: Wish(input_.by, reason) for other in others}, places, again=True)
    learned = _learned(state, input_) if wanted and input_.line else None
    bad = input_.rating == "bad"
    given = composed(
        ev.FeedbackGiven, input_, example=wanted, original=input_.original if bad else ev.Sampled(),
        answer=input_.answer if bad else "", replaces=input_.previous_seq if before else 0,
    )  # fmt: skip
    if learned is None:
        return Outcome([*events, given], [])
    taken, tier = learned
    events += overruled(state, [wanted], input_.by)
    held = held_for_leak(taken, input_.line) if isinstance(taken, ev.ExampleAccepted) and input_.line else []
    return Outcome([*events, taken, *held, given], [] if held else begin_encoding(state, [(wanted, tier)]))


def _learned(state: State, input_: Rated) -> tuple[ev.Event, ev.Tier] | None:
    """Event that puts the wanted example into the queue, and its tier; None if it is there already or must not be
    learned."""
    wanted, line = input_.example, input_.line
    dismissed = state.review.dismissed.get(wanted)
    if dismissed is not None and dismissed.how == "edited":
        return None  # a person's edited version is learned instead
    if line is not None and leaked(line) and (input_.known or wanted != line.example):
        return None  # a rating does not decide about a probe that leaked into the answer
    place = state.review.held.get(wanted) or dismissed
    if place is not None:
        reason = f"its answer was rated {input_.rating}"
        return ev.ExampleApproved(example=wanted, tier=place.tier, by=input_.by, reason=reason), place.tier
    if wanted in state.intake.withdrawn:
        return ev.ExampleRequeued(example=wanted, tier="direct", by=input_.by), "direct"
    if line is not None and wanted == line.example and not input_.known:
        return accepted(line, SOURCE, "direct"), "direct"
    return None


HANDLERS: Handlers = {Rated: _on_rated}


# --- status ----------------------------------------------------------------------------------------------------------


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """Captured answers of the engine."""

    mode: str = ""
    """`off`, `feedback` or `all`; empty if the state was folded from a journal"""
    answers: int = 0
    """number of kept answers"""
    rated: int = 0
    """rated answers, over the life of the journal"""


def status(state: State, mode: str, answers: int) -> Capture:
    """Captured answers: `answers` are kept, as counted in their store."""
    return Capture(mode=mode, answers=answers, rated=state.feedback.rated)
