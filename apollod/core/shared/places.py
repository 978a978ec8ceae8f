"""Locates examples that a decision can still reach."""

from collections.abc import Iterable
from typing import NamedTuple

from apollod.core.facts.intake.events import Tier
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
