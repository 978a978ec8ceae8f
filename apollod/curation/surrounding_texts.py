"""Surroundings, the context before a request in real use: the shipped ones, those from a person's own records, and the
conversation around a request or around an answer from a log. Pure; `core/surroundings` decides which one comes next.

An answer from a log, whose request nothing preceded but the stripped instruction, is learned in a shipped surrounding
for practice, as a dream is. A person's own surrounding is the context before the last request of a recorded
conversation, without the instruction that is to become unnecessary.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from typing import Any, Literal, NamedTuple

import msgspec

from apollod.core.facts.dreams.scenario import Turn
from apollod.core.facts.intake.events import Removed
from apollod.core.surroundings import INSTRUCTING, JOINT, NOTHING, Surrounding, SurroundingKind, SurroundingUse
from apollod.curation.dreaming.cheats import leak
from apollod.curation.stripping import TOOLS, Stripping, restored, strip
from apollod.wire.records import Form, Record, message_form, record_of_forms

DIGITS = 8
"""hex digits of a record's id that draw its surrounding: always the same one"""
CHARACTERS_MAX = 8_000
"""characters of one: fits a model with a context of 2,000 tokens"""
FAMILY_LETTERS = 200
"""leading letters of a system message that identify it, whatever date or directory follows"""
_NO_LETTER = re.compile(r"[\W\d_]+")


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of `data/surroundings.jsonl`."""

    id: str
    kind: Literal["neutral", "agent"]
    use: SurroundingUse
    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...] = ()


@cache
def lines() -> tuple[_Line, ...]:
    """All lines of the file, in order."""
    text = (files("apollod") / "data" / "surroundings.jsonl").read_bytes()
    return tuple(msgspec.json.decode(line, type=_Line) for line in text.splitlines())


@cache
def shipped(kind: Literal["neutral", "agent"], use: SurroundingUse) -> tuple[Surrounding, ...]:
    """The surroundings of a kind for a use, in the order of the file."""
    return tuple(
        Surrounding(kind, one.id, tuple(message_form(each, one.id) for each in one.messages), one.tools)
        for one in lines()
        if (one.kind, one.use) == (kind, use)
    )


def conversation_in(
    around: Surrounding, told: str, scenario: Sequence[Turn], answer: str | None = None, thought: str = ""
) -> list[dict[str, Any]]:
    """Messages of a record: the surrounding, with the instruction `told` in its system message, the scenario, and the
    answer if there is one, after a `thought` that is not learned. Earlier turns of the assistant are context and not
    learned."""
    before = [*_told_in(around, told), *({"role": turn.role, "content": turn.content} for turn in scenario)]
    shown = [{**one, "weight": 0} if one["role"] == "assistant" else one for one in before]
    return shown if answer is None else [*shown, answered(answer, thought)]


def answered(answer: str, thought: str = "") -> dict[str, Any]:
    """A learned answer as a message of a record, after a `thought`, if any, that is not learned."""
    context = {"reasoning_content": thought, "reasoning_weight": 0} if thought else {}
    return {"role": "assistant", "content": answer, **context}


def _told_in(around: Surrounding, told: str) -> list[dict[str, Any]]:
    messages = [dict(one) for one in around.messages]
    if not told:
        return messages
    if around.system is None:
        return [{"role": "system", "content": told}, *messages]
    return [{**messages[0], "content": around.system + JOINT + told}, *messages[1:]]


# --- from a log -------------------------------------------------------------------------------------------------------


class Placed(msgspec.Struct, frozen=True):
    """A record in its surrounding, and the texts that were stripped from it."""

    record: Record
    removed: tuple[Removed, ...]


def placed(record: Record, removed: tuple[Removed, ...], kinds: Sequence[SurroundingKind]) -> Placed:
    """Put the record into a surrounding. One with a system message left stays as it is, since that is a surrounding of
    its own; turns of an agent come only before a single request."""
    form = msgspec.json.decode(record.canonical)
    messages: list[Form] = form.get("messages", [])
    if not kinds or not messages or messages[0]["role"] in INSTRUCTING:
        return Placed(record, removed)
    around = _drawn(int(record.id[:DIGITS], 16), kinds, single=sum(one["role"] == "user" for one in messages) == 1)
    if around == NOTHING or form.get("tools"):
        return Placed(record, removed)
    before = [{**one, "weight": 0} if one["role"] == "assistant" else one for one in around.messages]
    whole = record_of_forms([*before, *messages], around.tools)._replace(tier=record.tier)
    return Placed(whole, tuple(_moved(one, around) for one in removed))


def _drawn(number: int, kinds: Sequence[SurroundingKind], single: bool) -> Surrounding:
    ours = [kind for kind in kinds if kind != "own"] or ["none"]
    kind = ours[number % len(ours)]
    if kind != "neutral" and not (kind == "agent" and single):
        return NOTHING
    found = shipped(kind, "practice")
    return found[number // len(ours) % len(found)]


def _moved(one: Removed, around: Surrounding) -> Removed:
    """The removal at its place in the surrounding: a system message moves to the end of the one there."""
    if one.at < 0 and one.role in INSTRUCTING and around.system is not None:
        return msgspec.structs.replace(one, place=0, at=len(around.system), text=JOINT + one.text)
    return msgspec.structs.replace(one, place=one.place + len(around.messages))


# --- a person's own ---------------------------------------------------------------------------------------------------


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
    family = " ".join(filter(None, _NO_LETTER.split(system)))[:FAMILY_LETTERS].casefold() or system or id_
    return "tests" if int(_digest(family.encode())[:2], 16) % 2 else "practice"


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()
