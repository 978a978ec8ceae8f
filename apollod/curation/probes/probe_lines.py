"""Probe files: JSONL, one item a line (docs/formats.md), read strictly: a probe that differs from its author's
intention makes the guard watch the wrong thing."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, Literal, NoReturn, get_args

import msgspec

from apollod.core.quality.lesson_group import GROUP
from apollod.core.settings import Check
from apollod.curation.minhash import WORDS_MIN
from apollod.curation.probes.plain_words import Shingle, shingles_of, words_of
from apollod.errors import RecordRefused
from apollod.wire.records import message_form, object_of_line

Kind = Literal["text", "exact", "regex", "schema", "judge", "tool", "contrast", "lesson"]
KINDS: tuple[Kind, ...] = tuple(kind for kind in get_args(Kind) if kind not in ("contrast", "lesson"))
"""kinds allowed in files; `contrast` is for patterns (contrast_probes.py), `lesson` for lessons (lesson_probes.py)"""
OF_PATTERNS = "contrast/"
"""prefix of groups and ids of contrast probes"""

PROBES_MAX = 4000
"""most probes in all files together: each is asked again and again"""
LINE_BYTES_MAX = 1 << 18
TEXT_MIN, TEXT_MAX = 20, 20_000  # characters of a text, or of all messages of a conversation
MESSAGES_MAX, TOOLS_MAX, ALTERNATIVES_MAX = 50, 50, 50
EXPECT_MAX = 20_000  # characters of what is expected, as JSON
SHINGLE, NEARLY = 3, 0.8  # words; the share of shingles in common from which two long items are nearly the same
_FIELDS = frozenset({"kind", "id", "group", "text", "messages", "tools", "expect"})
_name = re.compile(r"[\w.:/-]{1,80}").fullmatch
_written = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")).encode


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The call that a `tool` item expects: of the function `call`, or no call (None). Its arguments must follow the
    schema of the tool's own parameters, and `arguments`."""

    call: str | None
    arguments: dict[str, Any] | bool = True


class Probe(msgspec.Struct, frozen=True):
    """One item. `expect`: for `exact` all right answers, for `regex` a pattern, for `schema` a JSON schema, for `judge`
    a description of a good answer, for `tool` a call, for `contrast` the pattern's check, which must not pass, for
    `lesson` the right answer, followed by answers that are wrong now. `place`: file and line."""

    id: str
    group: str
    kind: Kind
    text: str = ""
    messages: tuple[dict[str, Any], ...] = ()
    tools: tuple[dict[str, Any], ...] = ()
    expect: tuple[str, ...] | str | dict[str, Any] | bool | Call | Check = ""
    place: str = ""

    @property
    def judged(self) -> bool:
        """True if a judge decides whether an answer passes."""
        return self.kind == "judge" or (isinstance(self.expect, Check) and not self.expect.by_code)

    def canonical(self) -> bytes:
        """JSON of all fields that can change the result."""
        fields = {name: getattr(self, name) for name in ("id", "group", "kind", "text", "messages", "tools", "expect")}
        return _written(msgspec.to_builtins(fields)).encode()

    def asked(self) -> tuple[str, ...]:
        """The words of the scored text or of the request."""
        said = [f"{one['role']}\n{one['content']}" for one in self.messages]
        return words_of("\n".join([self.text, *said, *map(_written, self.tools)]))

    def said(self) -> tuple[str, ...]:
        """The item's own words: without system prompt and tools, which many items share."""
        said = [one["content"] for one in self.messages if one["role"] not in ("system", "developer")]
        return words_of("\n".join([self.text, *said]))


def read_probes(lines: Iterable[bytes], path: str) -> list[Probe]:
    """The items of a file. Empty lines are skipped. Raises RecordRefused, naming the line."""
    return [probe_of(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]


def probe_of(line: bytes, place: str) -> Probe:
    """The item in a line. Raises RecordRefused, naming the place."""
    try:
        if len(line) > LINE_BYTES_MAX:
            _refuse(f"it has {len(line)} bytes, more than {LINE_BYTES_MAX}", "make it shorter")
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


def digest(probes: Iterable[Probe]) -> str:
    """Identifies a frozen set: hex of BLAKE2b-128 of its items, independent of files and order. Changes with any field
    that can change a result."""
    whole = blake2b(digest_size=16)
    for one in sorted(probe.canonical() for probe in probes):
        whole.update(len(one).to_bytes(8, "little") + one)
    return whole.hexdigest()


def _storable(value: dict[str, Any]) -> dict[str, Any]:
    try:
        _written(value).encode()
    except UnicodeEncodeError as error:
        raise RecordRefused("it holds half of a surrogate pair, which no text can", "repair its \\u escape") from error
    except ValueError as error:  # 1e400 is read as infinity
        raise RecordRefused("a number is too large", "use numbers that fit in 64 bits") from error
    return value


def _probe(value: dict[str, Any], place: str) -> Probe:
    kind, unknown = value.get("kind"), sorted(value.keys() - _FIELDS)
    if kind not in KINDS:
        _refuse(f"its kind is {kind!r}", f"use one of {', '.join(KINDS)}")
    if unknown:
        _refuse(f"it has the field {unknown[0]!r}", f"the fields are {', '.join(sorted(_FIELDS))}")
    wanted = {"text"} if kind == "text" else {"messages", "expect"} | ({"tools"} if kind == "tool" else set())
    given = value.keys() - {"kind", "id", "group"}
    if lacking := sorted(wanted - given):
        _refuse(f"a probe of kind {kind} has no {lacking[0]}", "add it")
    if beyond := sorted(given - wanted):
        _refuse(f"a probe of kind {kind} has {beyond[0]}", "leave it out, or give it another kind")
    own = Probe(
        id=_named(value.get("id"), "id"), group=_named(value.get("group"), "group") or kind, kind=kind, place=place,
        text=_text(value["text"]) if kind == "text" else "", messages=_messages(value.get("messages", [])),
        tools=_tools(value.get("tools", [])), expect=_expected(kind, value.get("expect")),
    )  # fmt: skip
    if kind != "text":
        _check_conversation(own)
    if own.id:
        return own
    nameless = msgspec.structs.replace(own, group="")
    return msgspec.structs.replace(own, id=blake2b(nameless.canonical(), digest_size=6).hexdigest())


def _check_conversation(probe: Probe) -> None:
    if not probe.messages or probe.messages[-1]["role"] not in ("user", "tool"):
        _refuse("messages do not end with a turn of user or tool", "end with what the model is to answer")
    if not any(one["role"] == "user" and one["content"].strip() for one in probe.messages):
        _refuse("no user says anything in messages", "ask something")
    if (size := sum(len(one["content"]) for one in probe.messages)) > TEXT_MAX:
        _refuse(f"its messages have {size} characters, more than {TEXT_MAX}", "make them shorter")
    if isinstance(probe.expect, Call):
        names = [tool["function"]["name"] for tool in probe.tools]
        if probe.expect.call is not None and probe.expect.call not in names:
            _refuse(f"it expects a call of {probe.expect.call!r}, which is none of its tools", "add the tool")
        if len(set(names)) < len(names):
            _refuse("two of its tools have one name", "rename one of them")


def _named(value: Any, what: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or not _name(value):
        _refuse(f"its {what} is {value!r:.60}", "use up to 80 letters, digits and . : / _ -")
    if value.startswith(OF_PATTERNS) or value == GROUP or value.startswith(f"{GROUP}/"):
        _refuse(f"its {what} is {value!r:.60}, as only those of patterns and lessons are", "call it something else")
    return str(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        _refuse("its text is not a string", "write the text as one string")
    if not TEXT_MIN <= len(value.strip()) or len(value) > TEXT_MAX:
        _refuse(f"its text has {len(value)} characters", f"use {TEXT_MIN} to {TEXT_MAX} of them")
    return str(value)


def _messages(value: Any) -> tuple[dict[str, Any], ...]:
    if not isinstance(value, list) or len(value) > MESSAGES_MAX:
        _refuse(f"its messages are not a list of up to {MESSAGES_MAX}", "give {role, content} objects")
    forms = [message_form(one, f"message {number}") for number, one in enumerate(value, 1)]
    return tuple(
        {name: field for name, field in one.items() if name not in ("strip", "weight", "reasoning_weight")}
        for one in forms
    )


def _tools(value: Any) -> tuple[dict[str, Any], ...]:
    if not isinstance(value, list) or len(value) > TOOLS_MAX:
        _refuse(f"its tools are not a list of up to {TOOLS_MAX}", "give the tools as in an OpenAI chat request")
    for number, tool in enumerate(value, 1):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
            _refuse(f"tool {number} has no function with a name", "give the tools as in an OpenAI chat request")
        if not isinstance(function.get("parameters", {}), dict):
            _refuse(f"the parameters of tool {number} are no JSON schema", "give an object")
    return tuple(value)


def _expected(kind: Kind, value: Any) -> Any:
    """The value of `Probe.expect`. A validator elsewhere checks whether a schema is valid."""
    if kind == "text":
        return ""
    if len(_written(value)) > EXPECT_MAX:
        _refuse(f"its expect has more than {EXPECT_MAX} characters", "make it shorter")
    if kind == "exact":
        found = value if isinstance(value, list) else [value]
        if not 0 < len(found) <= ALTERNATIVES_MAX or not all(isinstance(one, str) and plain(one) for one in found):
            _refuse("its expect is neither a text nor a list of texts", "give the answers that are right")
        return tuple(found)
    if kind in ("regex", "judge"):
        if not isinstance(value, str) or not value.strip():
            _refuse("its expect is not a text", "give a pattern" if kind == "regex" else "say what a good answer does")
        if kind == "regex":
            _check_pattern(value)
        return value
    if kind == "tool":
        try:
            return msgspec.convert(value, Call)
        except msgspec.ValidationError as error:
            raise RecordRefused(f"its expect is not a call: {error}", 'give {"call": NAME or null}') from error
    if not isinstance(value, dict | bool):
        _refuse("its expect is no JSON schema", "give an object")
    return value


def _check_pattern(pattern: str) -> None:
    try:
        found = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise RecordRefused(f"{pattern[:60]!r} is no regular expression: {error}", "mend it") from error
    if found.search(""):
        _refuse(f"{pattern[:60]!r} matches an answer that is empty", "expect something")


def plain(answer: str) -> str:
    """An answer normalised for `exact`: without case, quotes and emphasis around it, a full stop or exclamation mark at
    its end, and with single spaces."""
    text = " ".join(answer.casefold().replace("\u2019", "'").split())
    return text.strip("\"'`*_\u201c\u201d").rstrip(".!").strip("\"'`*_\u201c\u201d ")


def is_exactly(answer: str, expected: Sequence[str]) -> bool:
    """True if the answer equals one of these, after normalisation."""
    return plain(answer) in map(plain, expected)


def _refuse(what: str, hint: str) -> NoReturn:
    raise RecordRefused(what, hint)
