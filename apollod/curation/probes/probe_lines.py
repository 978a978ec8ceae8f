"""Probe files: JSONL, one item a line (docs/formats.md), read strictly: a probe that differs from its author's
intention makes the guard watch the wrong thing."""

import re
from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import msgspec

from apollod.core.facts.quality.looking import GROUP
from apollod.curation.probes.probe_item import PROBES_MAX, Probe, Shingle, shingles_of, written
from apollod.curation.probes.probe_kinds import KINDS, OF_PATTERNS, ProbeKind
from apollod.curation.signatures import WORDS_MIN
from apollod.errors import RecordRefused
from apollod.wire.records import message_form, object_of_line

LINE_BYTES_MAX = 1 << 18
TEXT_MIN, TEXT_MAX = 20, 20_000  # characters of a text, or of all messages of a conversation
MESSAGES_MAX, TOOLS_MAX = 50, 50
EXPECT_MAX = 20_000  # characters of what is expected, as JSON
SHINGLE, NEARLY = 3, 0.8  # words; the share of shingles in common from which two long items are nearly the same
_IN_FILES = {name: kind for name, kind in KINDS.items() if kind.in_files}
_ANY = frozenset({"kind", "id", "group"})
"""fields of a line of any kind"""
_FIELDS = _ANY.union(*(kind.fields for kind in _IN_FILES.values()))
_name = re.compile(r"[\w.:/-]{1,80}").fullmatch


def read_probes(lines: Iterable[bytes], path: str) -> list[Probe]:
    """The items of a file. Empty lines are skipped. Raises RecordRefused, naming the line."""
    return [probe_of(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]


def probe_of(line: bytes, place: str) -> Probe:
    """The item in a line. Raises RecordRefused, naming the place."""
    try:
        if len(line) > LINE_BYTES_MAX:
            raise RecordRefused(f"it has {len(line)} bytes, more than {LINE_BYTES_MAX}", "make it shorter")
        return _probe(_storable(object_of_line(line.strip())), place)
    except RecordRefused as error:
        raise RecordRefused(f"{place} is no probe: {error}", error.hint) from error


def probe_set(probes: Iterable[Probe]) -> tuple[Probe, ...]:
    """The items of all files. Raises RecordRefused for an empty set, for too many items, and for two with the same id
    or the same content or, if they have enough words, nearly the same."""
    found = tuple(probes)
    if not found:
        raise RecordRefused("there is no probe", "write one, or use those that come with apollod: [quality] levels = 3")
    if len(found) > PROBES_MAX:
        raise RecordRefused(f"there are {len(found)} probes, more than {PROBES_MAX}", "keep those that tell most")
    ids: dict[str, Probe] = {}
    asked: dict[tuple[str, ...], Probe] = {}
    long: list[frozenset[Shingle]] = []
    places: dict[Shingle, list[int]] = {}
    owners: list[Probe] = []
    for probe in found:
        if (other := asked.setdefault(probe.asked(), probe)) is not probe:
            raise RecordRefused(f"{probe.place} asks the same as {other.place}", "keep one of them")
        if (other := ids.setdefault(probe.id, probe)) is not probe:
            raise RecordRefused(f"{probe.place} has the id {probe.id!r} of {other.place}", "give it another")
        words = probe.said()
        if len(words) < WORDS_MIN:
            continue
        own = shingles_of(words, SHINGLE)
        common = Counter(place for one in own for place in places.get(one, ()))
        for place, count in common.items():
            if count / (len(own) + len(long[place]) - count) >= NEARLY:
                what = f"{probe.place} asks nearly the same as {owners[place].place}"
                raise RecordRefused(what, "keep one of them, or make them differ in more than a few words")
        for one in own:
            places.setdefault(one, []).append(len(long))
        long.append(own)
        owners.append(probe)
    return found


def _storable(value: dict[str, Any]) -> dict[str, Any]:
    try:
        written(value).encode()
    except UnicodeEncodeError as error:
        raise RecordRefused("it holds half of a surrogate pair, which no text can", "repair its \\u escape") from error
    except ValueError as error:  # 1e400 is read as infinity
        raise RecordRefused("a number is too large", "use numbers that fit in 64 bits") from error
    return value


def _probe(value: dict[str, Any], place: str) -> Probe:
    name, unknown, given = value.get("kind"), sorted(value.keys() - _FIELDS), value.keys() - _ANY
    if name not in _IN_FILES:
        raise RecordRefused(f"its kind is {name!r}", f"use one of {', '.join(_IN_FILES)}")
    if unknown:
        raise RecordRefused(f"it has the field {unknown[0]!r}", f"the fields are {', '.join(sorted(_FIELDS))}")
    kind = _IN_FILES[name]
    if lacking := sorted(kind.fields - given):
        raise RecordRefused(f"a probe of kind {name} has no {lacking[0]}", "add it")
    if beyond := sorted(given - kind.fields):
        raise RecordRefused(f"a probe of kind {name} has {beyond[0]}", "leave it out, or give it another kind")
    own = Probe(
        id=_named(value.get("id"), "id"), group=_named(value.get("group"), "group") or name, kind=name, place=place,
        text=_text(value["text"]) if kind.scored else "", messages=_messages(value.get("messages", [])),
        tools=_tools(value.get("tools", [])), expect="" if kind.scored else _expected(kind, value["expect"]),
    )  # fmt: skip
    if not kind.scored:
        _check_conversation(own)
    kind.check(own)
    if own.id:
        return own
    nameless = msgspec.structs.replace(own, group="")
    return msgspec.structs.replace(own, id=blake2b(nameless.canonical(), digest_size=6).hexdigest())


def _check_conversation(probe: Probe) -> None:
    if not probe.messages or probe.messages[-1]["role"] not in ("user", "tool"):
        raise RecordRefused("messages do not end with a turn of user or tool", "end with what the model is to answer")
    if not any(one["role"] == "user" and one["content"].strip() for one in probe.messages):
        raise RecordRefused("no user says anything in messages", "ask something")
    if (size := sum(len(one["content"]) for one in probe.messages)) > TEXT_MAX:
        raise RecordRefused(f"its messages have {size} characters, more than {TEXT_MAX}", "make them shorter")


def _named(value: Any, what: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or not _name(value):
        raise RecordRefused(f"its {what} is {value!r:.60}", "use up to 80 letters, digits and . : / _ -")
    if value.startswith(OF_PATTERNS) or value == GROUP or value.startswith(f"{GROUP}/"):
        why = f"its {what} is {value!r:.60}, as only those of patterns and lessons are"
        raise RecordRefused(why, "call it something else")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise RecordRefused("its text is not a string", "write the text as one string")
    if not TEXT_MIN <= len(value.strip()) or len(value) > TEXT_MAX:
        raise RecordRefused(f"its text has {len(value)} characters", f"use {TEXT_MIN} to {TEXT_MAX} of them")
    return value


def _messages(value: Any) -> tuple[dict[str, Any], ...]:
    if not isinstance(value, list) or len(value) > MESSAGES_MAX:
        raise RecordRefused(f"its messages are not a list of up to {MESSAGES_MAX}", "give {role, content} objects")
    forms = [message_form(one, f"message {number}") for number, one in enumerate(value, 1)]
    return tuple(
        {name: field for name, field in one.items() if name not in ("strip", "weight", "reasoning_weight")}
        for one in forms
    )


def _tools(value: Any) -> tuple[dict[str, Any], ...]:
    hint = "give the tools as in an OpenAI chat request"
    if not isinstance(value, list) or len(value) > TOOLS_MAX:
        raise RecordRefused(f"its tools are not a list of up to {TOOLS_MAX}", hint)
    for number, tool in enumerate(value, 1):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
            raise RecordRefused(f"tool {number} has no function with a name", hint)
        if not isinstance(function.get("parameters", {}), dict):
            raise RecordRefused(f"the parameters of tool {number} are no JSON schema", "give an object")
    return tuple(value)


def _expected(kind: ProbeKind, value: Any) -> Any:
    if len(written(value)) > EXPECT_MAX:
        raise RecordRefused(f"its expect has more than {EXPECT_MAX} characters", "make it shorter")
    return kind.expected(value)
