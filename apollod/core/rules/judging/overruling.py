"""Overruling a judge: a person approves an answer, so the replacement that the judge wrote is dropped. Pure; shared by
all code that takes such decisions."""

from collections.abc import Iterable

from apollod.core.facts.forgetting import Wish
from apollod.core.facts.review import ExampleDeclined
from apollod.core.kernel.event import Event
from apollod.core.shared.places import places_of, taken_back
from apollod.core.state import State


def overruled(state: State, approved: Iterable[str], by: str) -> list[Event]:
    """Events that withdraw the judge's replacements for these approved examples, and forget the learned ones."""
    better = {into: example for example in approved if (into := state.judging.better.get(example))}
    if not better:
        return []
    places = places_of(state, better)
    wishes = {
        into: Wish(by, f"{by} approved {example}, in place of which the judge wrote it")
        for into, example in better.items()
    }
    events: list[Event] = [
        ExampleDeclined(example=into, tier=place.tier, by=by, reason=wishes[into].reason)
        for into, place in places.items()
        if place.state in ("held", "pending")
    ]
    return [*events, *taken_back(state, wishes, places, again=True)]
