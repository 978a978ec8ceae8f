"""Locates examples that a decision can still reach, and takes back those that were learned or may have been. Pure."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from apollod.core.facts.forgetting import ForgetRequested, Wish
from apollod.core.facts.intake.events import ExampleWithdrawn, Tier
from apollod.core.facts.training import all_examples
from apollod.core.kernel.event import Event
from apollod.core.state import State


class Place(NamedTuple):
    state: str
    tier: Tier


def places_of(state: State, examples: Iterable[str]) -> dict[str, Place]:
    """State and tier of those examples that a decision can still reach."""
    review, places, rest = state.review, dict[str, Place](), set[str]()
    for example in examples:
        if (held := review.held.get(example)) is not None:
            places[example] = Place("held", held.tier)
        elif (dismissed := review.dismissed.get(example)) is not None:
            places[example] = Place(dismissed.how, dismissed.tier)
        else:
            rest.add(example)
    if rest:
        for queue in state.intake.queues:
            places |= {one.example: Place("pending", one.tier) for one in queue.waiting if one.example in rest}
    return places


def taken_back(
    state: State, wishes: Mapping[str, Wish], places: Mapping[str, Place], again: bool = False
) -> list[Event]:
    """Events that take these examples out of the weights, except those in `places`, which a decision still reaches.
    Undone examples are withdrawn; for the others forgetting is requested. `again`: also if it was refused before."""
    own, events = state.forgetting, list[Event]()
    running = state.training.running
    learning = all_examples(running.begun) if running is not None else ()
    known = own.wanted.keys() | (own.under_way.wishes.keys() if own.under_way else set())
    known |= set() if again else own.refused.keys()
    for example, wish in wishes.items():
        if example in places or example in state.intake.withdrawn:
            continue
        if example in state.intake.undone and example not in learning:  # a step that repeats it cannot be stopped
            events.append(ExampleWithdrawn(examples=(example,), by=wish.by, reason=wish.reason))
        elif example not in known:
            events.append(ForgetRequested(examples=(example,), by=wish.by, reason=wish.reason))
    return events
