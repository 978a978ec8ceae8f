"""What stands before requests of this world: the surroundings that ship, and those of the records that a person of the
demo has. Pure.

The model is pretrained in all of them that are short enough for it, as any model that is served has seen system
messages of every sort: it knows that they ask for nothing. What is practised and tested in them is another matter, and
kept apart.
"""

import random
from collections.abc import Mapping
from functools import cache
from typing import Any, get_args

from apollod.core.surroundings import NOTHING, Surrounding, SurroundingKind, SurroundingUse
from apollod.curation.surroundings.own import Recorded, own_surroundings
from apollod.curation.surroundings.shipped import shipped
from apollod.demo.world.scenarios import Fact, Split, pool
from apollod.wire.records import record_of

USES: tuple[SurroundingUse, ...] = get_args(SurroundingUse)
LONGEST = 1000
"""characters of a surrounding that the model is pretrained in"""
SHARES: Mapping[SurroundingKind, float] = {"none": 0.6, "neutral": 0.26, "agent": 0.06, "own": 0.08}
"""In which surroundings the model is pretrained, and how often."""

_OWN = (
    "You keep the log book of the harbour. Ships come and go with the tide.",
    "This is the kitchen of a mountain hut. Hikers order at the counter.",
    "Answer for the bicycle club of our village. Rides begin on Saturday morning.",
    "Team channel of the night train. The conductor reads along.",
    "Our radio station plays old records. Listeners send in wishes.",
    "House rules of the pottery: the oven is hot until noon, and the door stays shut.",
    "Project diary of a beekeeper with six hives. Entries are dated.",
    "For the members of a chess club: the hall is free on Wednesday evening.",
)
_TURN = ("Hello!", "How can I help you?")


def own_records() -> tuple[dict[str, Any], ...]:
    """Conversations that a person of the demo had, as lines of the inbox: every second one with an earlier turn. Each
    asks for another fact, which the model knows."""
    facts = [one for one in pool("fact", Split.PRETRAINING) if isinstance(one, Fact)]
    asked = [(one.request, one.sentence) for one in facts[:: len(facts) // len(_OWN)]]
    return tuple(
        {"messages": [{"role": "system", "content": system}, *(_turn(_TURN) if number % 2 else ()), *_turn(last)]}
        for number, (system, last) in enumerate(zip(_OWN, asked, strict=False))
    )


def _turn(turn: tuple[str, str]) -> list[dict[str, str]]:
    return [{"role": "user", "content": turn[0]}, {"role": "assistant", "content": turn[1]}]


@cache
def standing_before(kind: SurroundingKind, use: SurroundingUse) -> tuple[Surrounding, ...]:
    """Surroundings of a kind for a use, as far as they are short enough for the model."""
    if kind == "none":
        return (NOTHING,)
    if kind == "own":
        recorded = [Recorded(record_of(one).canonical) for one in own_records()]
        return tuple(one.surrounding for one in own_surroundings(recorded, "") if one.use == use)
    return tuple(one for one in shipped(kind, use) if _length(one) <= LONGEST)


def _length(one: Surrounding) -> int:
    return sum(len(str(message)) for message in (*one.messages, *one.tools))


def draw(rng: random.Random, shares: Mapping[SurroundingKind, float] = SHARES) -> Surrounding:
    """One of any use, its kind by shares."""
    (kind,) = rng.choices(list(shares), list(shares.values()))
    return rng.choice([one for use in USES for one in standing_before(kind, use)])


def texts() -> list[str]:
    """All that the model is pretrained in."""
    every = [one for use in USES for kind in SHARES for one in standing_before(kind, use)]
    return [str(message["content"]) for one in every for message in one.messages]


@cache
def system_messages() -> tuple[str, ...]:
    """Of all surroundings, those of agents with long ones among them."""
    every = [one for use in USES for one in (*shipped("neutral", use), *shipped("agent", use))]
    return (*(str(one.system) for one in every), *_OWN)
