"""Surroundings of requests in this world: the shipped ones, and those from the records of the demo's person. Pure.

The model is pretrained in all of them, just as any served model has seen system messages of every sort: it knows that
they contain no instructions. Surroundings for practice and for tests are separate, and kept apart.
"""

import random
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, get_args

from apollod.core.surroundings import NOTHING, SURROUNDING_KINDS, Surrounding, SurroundingKind, SurroundingUse
from apollod.curation.surrounding_texts import Recorded, own_surroundings, shipped
from apollod.demo.world.scenarios import Fact, Split, Talk, pool
from apollod.wire.records import record_of

MIXED = 0.7
"""share of the surroundings for pretraining that are made of parts of several"""
OWN_TURNS = 0.5
"""share of these with the turns of one of them"""
SHORT = 700
"""most characters of a system message that is split into sentences"""
USES: tuple[SurroundingUse, ...] = get_args(SurroundingUse)

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
    """Conversations of the demo's person, as lines of the inbox: every second one with an earlier turn. Each asks for
    another fact that the model knows."""
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
    """Surroundings of a kind for a use."""
    if kind == "none":
        return (NOTHING,)
    if kind == "own":
        recorded = [Recorded(record_of(one).canonical) for one in own_records()]
        return tuple(one.surrounding for one in own_surroundings(recorded, "") if one.use == use)
    return shipped(kind, use)


def draw(rng: random.Random, shares: Mapping[SurroundingKind, float]) -> Surrounding:
    """A surrounding of any use, its kind by shares. Most are made of parts of several: a model that saw only a few,
    often, would memorise each of them, and would have to learn a behaviour anew in each."""
    (kind,) = rng.choices(list(shares), list(shares.values()))
    one = rng.choice(_every(kind))
    return _mixed(rng, one) if kind != "none" and rng.random() < MIXED else one


@cache
def _every(kind: SurroundingKind) -> tuple[Surrounding, ...]:
    return tuple(one for use in USES for one in standing_before(kind, use))


def _mixed(rng: random.Random, one: Surrounding) -> Surrounding:
    """A system message of sentences from several surroundings, for an agent with consecutive lines of one, and turns of
    this one or others before the request."""
    system = " ".join(rng.sample(_sentences(), rng.randint(1, 4)))
    turns = list(one.messages[1:]) if rng.random() < OWN_TURNS else []
    if one.kind == "agent":
        lines = str(one.system).split("\n")
        begin, end = sorted(rng.sample(range(len(lines) + 1), 2))
        system = "\n".join([system, *lines[begin:end]])
    if one.kind != "neutral" and not turns:
        asked = [rng.choice(_asked()) for _ in range(rng.randint(0, 2))]
        turns = [message for turn in asked for message in _turn(turn)]
    return Surrounding(one.kind, "", ({"role": "system", "content": system}, *turns))


@cache
def _sentences() -> tuple[str, ...]:
    """Sentences of the short system messages of all surroundings."""
    every = [str(one.system) for kind in SURROUNDING_KINDS if kind != "none" for one in _every(kind)]
    short = [text for text in every if len(text) < SHORT]
    return tuple(dict.fromkeys(part for text in short for part in re.split(r"(?<=[.!?])\s+|\n", text) if part))


@cache
def _asked() -> tuple[tuple[str, str], ...]:
    """Questions of this world with their answers, as earlier turns."""
    kinds: tuple[Literal["fact", "talk"], ...] = ("fact", "talk")
    found = [one for kind in kinds for one in pool(kind, Split.PRETRAINING) if isinstance(one, Fact | Talk)]
    return tuple((one.request, one.sentence) for one in found)


def texts() -> list[str]:
    """All texts of the surroundings for pretraining."""
    every = [one for use in USES for kind in SURROUNDING_KINDS for one in standing_before(kind, use)]
    return [str(message["content"]) for one in every for message in one.messages]


@cache
def system_messages() -> tuple[str, ...]:
    """System messages of all surroundings, long ones of agents included."""
    every = [one for use in USES for one in (*shipped("neutral", use), *shipped("agent", use))]
    return (*(str(one.system) for one in every), *_OWN)
