"""Surroundings: the context before a request, as in real use: nothing, a system message, or an agent with its tools and
earlier turns. Practices and tests take them in turn. Pure."""

from collections.abc import Collection, Sequence
from math import lcm
from typing import Any, Literal, get_args

import msgspec

SurroundingKind = Literal["none", "neutral", "agent", "own"]
"""none: no context; neutral: a system message that asks for nothing in particular; agent: one of an agent, with its
tools and earlier turns; own: the context of requests in the user's own records."""
SURROUNDING_KINDS: tuple[SurroundingKind, ...] = get_args(SurroundingKind)
SurroundingUse = Literal["practice", "tests"]
"""Use of a text: practice or tests. Texts of one use are never used for the other."""
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
        """System message, to which an instruction is added; None: none."""
        first = self.messages[0] if self.messages else {}
        return str(first["content"]) if first.get("role") in INSTRUCTING else None


NOTHING = Surrounding()


class Drawn(msgspec.Struct, frozen=True, omit_defaults=True):
    """The wanted surrounding: number `turn` of its kind, modulo their count."""

    kind: SurroundingKind = "none"
    turn: int = 0


def drawn(kinds: Sequence[SurroundingKind], number: int, beside: int = 1) -> Drawn:
    """The surrounding of the `number`-th in a row. Kinds take turns, so that each kind meets each of `beside` other
    things that take turns as well: after each common round the kinds shift by one."""
    place = number + number // lcm(len(kinds), beside)
    return Drawn(kinds[place % len(kinds)], number // len(kinds))


def in_place_of(wanted: Drawn, kinds: Sequence[SurroundingKind], missing: Collection[SurroundingKind]) -> Drawn:
    """The surrounding to take instead if kinds are `missing`: the others in turn, so that none of them dominates."""
    if wanted.kind not in missing:
        return wanted
    left = [kind for kind in kinds if kind not in missing]
    return Drawn(left[wanted.turn % len(left)], wanted.turn) if left else Drawn()
