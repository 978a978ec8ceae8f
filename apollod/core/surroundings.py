"""Surroundings: what stands before a request where a model is used, which is nothing, a system message, or
an agent with its tools and earlier turns. Practices and tests take them in turn. Pure."""

from collections.abc import Collection, Sequence
from math import lcm
from typing import Any, Literal, get_args

import msgspec

SurroundingKind = Literal["none", "neutral", "agent", "own"]
"""none: nothing stands there; neutral: a system message that asks for nothing in particular; agent: one of an agent,
with its tools and earlier turns; own: what stood before requests in a person's own records."""
SURROUNDING_KINDS: tuple[SurroundingKind, ...] = get_args(SurroundingKind)
SurroundingUse = Literal["practice", "tests"]
"""No text of the one is used for the other."""
INSTRUCTING = ("system", "developer")
"""roles of a system message"""
JOINT = "\n\n"
"""between a system message and the instruction that is added to it"""


class Surrounding(msgspec.Struct, frozen=True, omit_defaults=True):
    """The messages and tools before a request. `messages`, `tools`: as in a record; `id`: of its text."""

    kind: SurroundingKind = "none"
    id: str = ""
    messages: tuple[dict[str, Any], ...] = ()
    tools: tuple[dict[str, Any], ...] = ()

    @property
    def system(self) -> str | None:
        """Its system message, to which an instruction is added; None: it has none."""
        first = self.messages[0] if self.messages else {}
        return str(first["content"]) if first.get("role") in INSTRUCTING else None


NOTHING = Surrounding()


class Drawn(msgspec.Struct, frozen=True, omit_defaults=True):
    """The surrounding that is wanted: the one in place `turn` of its kind, counted around."""

    kind: SurroundingKind = "none"
    turn: int = 0


def drawn(kinds: Sequence[SurroundingKind], number: int, beside: int = 1) -> Drawn:
    """The surrounding of the `number`-th in a row. Each kind comes in turn, and together with each of `beside` other
    things that come in turn, too: after each common round the kinds are one further on."""
    place = number + number // lcm(len(kinds), beside)
    return Drawn(kinds[place % len(kinds)], number // len(kinds))


def in_place_of(wanted: Drawn, kinds: Sequence[SurroundingKind], missing: Collection[SurroundingKind]) -> Drawn:
    """The surrounding that is taken where some kinds cannot be had: the others, in turn, so that none of them takes all
    the room."""
    if wanted.kind not in missing:
        return wanted
    left = [kind for kind in kinds if kind not in missing]
    return Drawn(left[wanted.turn % len(left)], wanted.turn) if left else Drawn()
