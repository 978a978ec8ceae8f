"""Surroundings from a person's own records: the context before the last request of recorded conversations, without the
instruction that is to become unnecessary."""

import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from apollod.core.dreams.scenario import Turn
from apollod.core.intake.events import Removed
from apollod.core.surroundings import INSTRUCTING, Surrounding, SurroundingUse
from apollod.curation.dreaming.cheats import leak
from apollod.curation.stripping import TOOLS, Stripping, restored, strip
from apollod.wire.records import Form

CHARACTERS_MAX = 8_000
"""characters of one: fits a model with a context of 2,000 tokens"""
FAMILY_LETTERS = 200
"""leading letters of a system message that identify it, whatever date or directory follows"""
_NO_LETTER = re.compile(r"[\W\d_]+")


class Own(NamedTuple):
    """A surrounding, and its permitted use."""

    use: SurroundingUse
    surrounding: Surrounding


class Recorded(NamedTuple):
    """A conversation as it is learned: its canonical record, and the texts that were stripped from it."""

    record: bytes
    removed: tuple[Removed, ...] = ()


def own_surroundings(recorded: Iterable[Recorded], instruction: str, most: int = CHARACTERS_MAX) -> list[Own]:
    """The distinct surroundings, in the order of the conversations. Left out: those that still state the instruction in
    other words after stripping, and empty ones."""
    found: dict[str, Own] = {}
    for one in recorded:
        if (own := _own(one, instruction, most)) is not None:
            found.setdefault(own.surrounding.id, own)
    return list(found.values())


def _own(recorded: Recorded, instruction: str, most: int) -> Own | None:
    form = msgspec.json.decode(recorded.record)
    messages = restored(form.get("messages", []), recorded.removed)
    asked = next((n for n in range(len(messages) - 1, -1, -1) if messages[n]["role"] == "user"), 0)
    taken = [tool for one in recorded.removed if one.why == TOOLS for tool in msgspec.json.decode(one.text)]
    tools = taken or form.get("tools", [])
    before, _, _ = strip(messages[:asked], Stripping("none", instruction=instruction))
    if instruction and leak(instruction, [Turn(one["role"], one["content"]) for one in before]):
        return None
    if len(msgspec.json.encode(tools)) * 2 > most:
        tools = []
    room = most - (len(msgspec.json.encode(tools)) if tools else 0)
    before = [{key: value for key, value in one.items() if key != "strip"} for one in _bounded(before, room)]
    if not before and not tools:
        return None
    id_ = _digest(msgspec.json.encode([before, tools]))
    return Own(_use(before, id_), Surrounding("own", id_, tuple(before), tuple(tools)))


def _bounded(messages: Sequence[Form], room: int) -> list[Form]:
    """The system message, cut at the end of a line if it is too long, and as many of the last turns as fit, beginning
    with a user's."""
    told = [one for one in messages[:1] if one["role"] in INSTRUCTING]
    told = [{**one, "content": _cut(one["content"], room)} for one in told]
    room -= sum(map(_size, told))
    kept: list[Form] = []
    for one in reversed(messages[len(told) :]):
        room -= _size(one)
        if room < 0:
            break
        kept.insert(0, one)
    while kept and kept[0]["role"] != "user":
        del kept[0]
    return [*told, *kept]


def _cut(text: str, room: int) -> str:
    if len(text) <= room:
        return text
    return text[: text.rfind("\n", 0, room)] if "\n" in text[:room] else text[:room]


def _size(message: Form) -> int:
    return len(message["content"]) + sum(len(msgspec.json.encode(call)) for call in message.get("tool_calls", ()))


def _use(before: Sequence[dict[str, Any]], id_: str) -> SurroundingUse:
    """The use of a surrounding, the same for all with the same system message: no test runs under a practised one."""
    system = next((one["content"] for one in before[:1] if one["role"] in INSTRUCTING), "")
    family = " ".join(_letters(system))[:FAMILY_LETTERS].casefold() or system or id_
    return "tests" if int(_digest(family.encode())[:2], 16) % 2 else "practice"


def _letters(text: str) -> Iterator[str]:
    return filter(None, _NO_LETTER.split(text))


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()
