"""Shared by the readers of all agents' sessions: everything except the meaning of a record.

A format is two functions: `recognise` tests the beginning of a file, `hear` interprets a record. Records are lines,
unless the format has its own `split`. The conversation is assembled here and comes out turn by turn.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from apollod.curation.assembly import Assembly
from apollod.curation.conversation import Dropped, Entry, Unknown
from apollod.curation.formats.reader import ACCIDENTS, Bad, Cursor, Folded, Item, Limits, Split, accident, fold_lines
from apollod.errors import RecordRefused
from apollod.wire.records import Form, message_form
from apollod.wire.strict_json import checked_text

T = TypeVar("T")

TEXT_FIELDS = ("text", "thinking", "reasoning")


def json_object(line: bytes, decode: Callable[[bytes], T]) -> T:
    """Decode a line as a record of a log. Raises RecordRefused if it is not a JSON object of that shape."""
    try:
        return decode(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        checked_text(line)  # msgspec's own words for a wrong encoding differ from release to release
        raise RecordRefused(
            f"the line is no record of this log: {error}", "nothing to do if the program was writing; else look at it"
        ) from error


def text_of_blocks(blocks: Any, kind: str) -> str:
    """The texts of all blocks of a type, one after the other; a string is one text block."""
    if isinstance(blocks, str):
        return blocks if kind == "text" else ""
    if not isinstance(blocks, list):
        return ""
    return "".join([_text_of(block) for block in blocks if isinstance(block, dict) and block.get("type") == kind])


def _text_of(block: dict[str, Any]) -> str:
    for field in TEXT_FIELDS:
        if isinstance(text := block.get(field), str):
            return text
    return ""


def texts_of_parts(parts: Any, thought: bool = False) -> str:
    """The texts of Gemini's parts, or the thoughts among them; a string is one part."""
    if isinstance(parts, str):
        return "" if thought else parts
    parts = parts if isinstance(parts, list) else [parts]
    texts = (part for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))
    return "".join(part["text"] for part in texts if bool(part.get("thought")) == thought)


def in_parts(parts: Any, kind: str) -> list[dict[str, Any]]:
    """Gemini's `functionCall` or `functionResponse` objects."""
    parts = parts if isinstance(parts, list) else [parts]
    return [part[kind] for part in parts if isinstance(part, dict) and isinstance(part.get(kind), dict)]


def text_of_response(response: Any) -> str:
    """The result of a tool in Gemini's `response`: its `output` or `error` if that is its only member, else JSON."""
    if isinstance(response, dict) and len(response) == 1:
        response = response.get("output", response.get("error", response))
    return response if isinstance(response, str) else json_text(response)


def json_text(value: Any) -> str:
    """A JSON value as text for a model."""
    return msgspec.json.encode(value).decode()


def tool_call(call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    """A call in the form of an OpenAI message; `arguments` is an object or JSON text."""
    return {"id": call_id, "function": {"name": name, "arguments": arguments}}


def form(role: str, content: str, **fields: Any) -> Form:
    """The canonical form of a log's message; empty fields are left out. Raises RecordRefused."""
    given = {name: value for name, value in fields.items() if value}
    return message_form({"role": role, "content": content, **given}, f"a message of {role}", part=True)


def context_form(form: Form) -> Form:
    """The same answer as context, which is not learned."""
    return {**form, "weight": 0}


Recognise = Callable[[str, bytes], bool]
Hear = Callable[[bytes], Iterable[Entry]]
"""The entries of one record. Raises RecordRefused for a record of another format."""
TYPE_MAX = 80  # characters of an unknown type's name, which comes from the log


class _State(msgspec.Struct, frozen=True, omit_defaults=True):
    """The recorded part of an assembly: the log is read again for the rest."""

    given: int = 0
    place: str = ""
    """state of the function that cuts bytes into records"""


class SessionReader:
    """A `Reader` of sessions written record by record."""

    def __init__(self, name: str, recognise: Recognise, hear: Hear, split: Split = fold_lines) -> None:
        self.name = name
        self._recognise = recognise
        self._hear = hear
        self._split = split

    def recognise(self, path: str, head: bytes) -> bool:
        try:
            return self._recognise(path, head)
        except (ValueError, TypeError, AttributeError, RecursionError):  # any bytes may come here
            return False

    def fold(self, cursor: Cursor, data: bytes, end: bool, limits: Limits) -> Folded:
        assembly, counts = self._assembly(cursor), Counter[str]()

        def take(number: int, line: bytes) -> Iterable[Item]:
            if not line.strip():
                return ()
            try:
                entries = tuple(self._hear(line))
            except RecordRefused as error:
                return (Bad(number, error.line(), line),)
            except ACCIDENTS as error:
                return (Bad(number, accident(error), line),)
            for entry in entries:
                if isinstance(entry, Dropped):
                    counts[f"dropped: {entry.reason}"] += 1
                elif isinstance(entry, Unknown):
                    counts[f"unknown: {entry.type[:TYPE_MAX]}"] += 1
            return assembly.feed(number, entries)

        begin = msgspec.structs.replace(cursor, state=self._state(cursor).place)
        folded = self._split(begin, data, end, limits, take)
        items = folded.items
        if end and folded.cursor.offset == cursor.offset + len(data) and len(items) < limits.items:
            items += tuple(assembly.settle())
        if folded.cursor == msgspec.structs.replace(begin, memory=None) and not items:
            return Folded(cursor, ())
        counts.update(folded.counts)
        return Folded(self._cursor(folded.cursor, assembly, folded.cursor.state), items, counts)

    def settle(self, cursor: Cursor) -> Folded:
        assembly = self._assembly(cursor)
        moments = assembly.settle()
        place = self._state(cursor).place
        return Folded(self._cursor(cursor, assembly, place), tuple(moments)) if moments else Folded(cursor, ())

    def recall(self, cursor: Cursor, before: Iterable[bytes], limits: Limits) -> Cursor:
        given = self._state(cursor).given
        at, rest = Cursor(memory=Assembly(given)), b""
        for piece in before:
            rest += piece
            while True:
                folded = self.fold(at, rest, False, limits._replace(items=1 << 62))
                rest = rest[folded.cursor.offset - at.offset :]
                if folded.cursor.offset == at.offset:
                    break
                at = folded.cursor
        assembly = self._assembly(at)
        assembly.skip(given)
        return msgspec.structs.replace(cursor, memory=assembly)

    @staticmethod
    def _assembly(cursor: Cursor) -> Assembly:
        return cursor.memory.copy() if isinstance(cursor.memory, Assembly) else Assembly()

    @staticmethod
    def _state(cursor: Cursor) -> _State:
        try:
            return msgspec.json.decode(cursor.state or "{}", type=_State)
        except msgspec.MsgspecError:
            return _State()

    @staticmethod
    def _cursor(cursor: Cursor, assembly: Assembly, place: str) -> Cursor:
        state = msgspec.json.encode(_State(assembly.given, place)).decode() if assembly.given or place else ""
        return msgspec.structs.replace(cursor, state=state, memory=assembly)
