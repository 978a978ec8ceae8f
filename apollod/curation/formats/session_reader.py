"""Shared by the readers of all agents' sessions: everything except the meaning of a record.

A format is two functions: `recognise` tests the beginning of a file, `hear` interprets a record. Records are lines,
unless the format has its own `split`. The conversation is assembled here and comes out turn by turn.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, ParamSpec, TypeVar

import msgspec

from apollod.curation.assembly import Assembly
from apollod.curation.conversation import Dropped, Entry, Unknown
from apollod.curation.formats.reader import ACCIDENTS, Bad, Cursor, Folded, Item, Limits, Split, accident, fold_lines
from apollod.errors import RecordRefused
from apollod.wire.strict_json import checked_text

T = TypeVar("T")
P = ParamSpec("P")


def json_object(line: bytes, decode: Callable[[bytes], T]) -> T:
    """Decode a line as a record of a log. Raises RecordRefused if it is not a JSON object of that shape."""
    try:
        return decode(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        checked_text(line)  # msgspec's own words for a wrong encoding differ from release to release
        raise RecordRefused(
            f"the line is no record of this log: {error}", "nothing to do if the program was writing; else look at it"
        ) from error


def json_or(text: object, default: T, type: Any = Any) -> T:
    """The value of JSON text; `default` for anything else, or JSON of another `type`."""
    try:
        return msgspec.json.decode(text, type=type) if isinstance(text, str) else default
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return default


def string(value: object) -> str:
    """The value if it is text; empty for anything else."""
    return value if isinstance(value, str) else ""


class Heard(NamedTuple):
    """The content of a record."""

    entries: tuple[Entry, ...] = ()
    gone: bool = False
    """an answer that the user took back"""
    problem: str = ""
    """reason why it cannot be read as a record"""


def attempt(hear: Callable[P, Iterable[Entry]], *args: P.args, **more: P.kwargs) -> Heard:
    """The entries of a record, or the problem with it: a reader that stumbles costs one record."""
    try:
        return Heard(tuple(hear(*args, **more)))
    except RecordRefused as error:
        return Heard(problem=error.line())
    except ACCIDENTS as error:
        return Heard(problem=accident(error))


def left_out(entries: Iterable[Entry]) -> Iterator[str]:
    """The reason for each entry that no conversation has, as in `Folded.counts`."""
    for entry in entries:
        if isinstance(entry, Dropped):
            yield f"dropped: {entry.reason}"
        elif isinstance(entry, Unknown):
            yield f"unknown: {entry.type[:TYPE_MAX]}"


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
            heard = attempt(self._hear, line)
            if heard.problem:
                return (Bad(number, heard.problem, line),)
            counts.update(left_out(heard.entries))
            return assembly.feed(number, heard.entries)

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
        return json_or(cursor.state, _State(), _State)

    @staticmethod
    def _cursor(cursor: Cursor, assembly: Assembly, place: str) -> Cursor:
        state = msgspec.json.encode(_State(assembly.given, place)).decode() if assembly.given or place else ""
        return msgspec.structs.replace(cursor, state=state, memory=assembly)
