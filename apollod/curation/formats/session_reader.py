"""What every log of an agent's session has in common, if it is made of lines: all but what a line means.

A format is two functions: whether the beginning of a file is of it, and what a line says (`hear`). The conversation is
put together here and given away turn by turn.
"""

from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from apollod.curation.assembly import Assembly
from apollod.curation.conversation import Dropped, Entry, Unknown
from apollod.curation.formats.lines import fold_lines
from apollod.curation.formats.reader import Bad, Cursor, Folded, Item, Limits
from apollod.errors import RecordRefused

Recognise = Callable[[str, bytes], bool]
Hear = Callable[[bytes], Iterable[Entry]]
"""The entries of one line. Raises RecordRefused for one that is not of the format."""


class _State(msgspec.Struct, frozen=True):
    """What is recorded of an assembly: the log is read again for the rest."""

    given: int = 0


class SessionReader:
    """A `Reader` of sessions written line by line."""

    def __init__(self, name: str, recognise: Recognise, hear: Hear) -> None:
        self.name = name
        self._recognise = recognise
        self._hear = hear

    def recognise(self, path: str, head: bytes) -> bool:
        """See `Reader.recognise`."""
        try:
            return self._recognise(path, head)
        except (ValueError, TypeError, AttributeError, RecursionError):  # it is anything
            return False

    def fold(self, cursor: Cursor, data: bytes, end: bool, limits: Limits) -> Folded:
        """See `Reader.fold`."""
        assembly, counts = self._assembly(cursor), Counter[str]()

        def take(number: int, line: bytes) -> Iterable[Item]:
            if not line.strip():
                return ()
            try:
                entries = tuple(self._hear(line))
            except RecordRefused as error:
                return (Bad(number, error.line(), line),)
            for entry in entries:
                if isinstance(entry, Dropped):
                    counts[f"dropped: {entry.reason}"] += 1
                elif isinstance(entry, Unknown):
                    counts[f"unknown: {entry.type}"] += 1
            return assembly.feed(number, entries)

        folded = fold_lines(cursor, data, end, limits, take)
        items = folded.items
        if end and folded.cursor.offset == cursor.offset + len(data) and len(items) < limits.items:
            items += tuple(assembly.settle())
        if folded.cursor.offset == cursor.offset and not items:
            return Folded(msgspec.structs.replace(folded.cursor, memory=cursor.memory), ())
        counts.update(folded.counts)
        return Folded(self._cursor(folded.cursor, assembly), items, counts)

    def settle(self, cursor: Cursor) -> Folded:
        """See `Reader.settle`."""
        assembly = self._assembly(cursor)
        moments = assembly.settle()
        return Folded(self._cursor(cursor, assembly), tuple(moments)) if moments else Folded(cursor, ())

    def recall(self, cursor: Cursor, before: Iterable[bytes], limits: Limits) -> Cursor:
        """See `Reader.recall`."""
        at, rest = Cursor(), b""
        for piece in before:
            rest += piece
            while True:
                folded = self.fold(at, rest, False, limits._replace(items=1 << 62))
                rest = rest[folded.cursor.offset - at.offset :]
                if folded.cursor.offset == at.offset:
                    break
                at = folded.cursor
        assembly = self._assembly(at)
        assembly.skip(self._state(cursor).given)
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
    def _cursor(cursor: Cursor, assembly: Assembly) -> Cursor:
        state = msgspec.json.encode(_State(assembly.given)).decode() if assembly.given else ""
        return msgspec.structs.replace(cursor, state=state, memory=assembly)
