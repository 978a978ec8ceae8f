"""The shipped surroundings (`data/surroundings.jsonl`): neutral ones and agents' ones, for practice and for tests."""

from functools import cache
from importlib.resources import files
from typing import Any, Literal

import msgspec

from apollod.core.surroundings import Surrounding, SurroundingUse
from apollod.wire.records import message_form


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of the file."""

    id: str
    kind: Literal["neutral", "agent"]
    use: SurroundingUse
    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...] = ()


@cache
def lines() -> tuple[Line, ...]:
    """All lines of the file, in order."""
    text = (files("apollod") / "data" / "surroundings.jsonl").read_bytes()
    return tuple(msgspec.json.decode(line, type=Line) for line in text.splitlines())


@cache
def shipped(kind: Literal["neutral", "agent"], use: SurroundingUse) -> tuple[Surrounding, ...]:
    """The surroundings of a kind for a use, in the order of the file."""
    return tuple(
        Surrounding(kind, one.id, tuple(message_form(each, one.id) for each in one.messages), one.tools)
        for one in lines()
        if (one.kind, one.use) == (kind, use)
    )
