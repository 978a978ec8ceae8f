"""An index of the journal that costs an append almost nothing: it is written late, and in its own order.

Its keys are random, so a row written to it at once would dirty a page of its own, and an append would become dearer
with every one (a factor of 8 at a million). The newest keys are therefore kept in memory; when there are many, they go
to the table in its order, a slice at a time, so that one page takes several. The table is derived: a row of `meta` says
up to which event it is complete.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

import aiosqlite
import msgspec

Key = TypeVar("Key", str, int)


class Kind(NamedTuple, Generic[Key]):
    """What an index is of. `recent`: SQL of (value, event) after the event up to which the table is complete, in the
    order of events; `keys`: those that such a value says; `slice`: rows written at a time, a few ms for a thousand."""

    table: str
    complete: str
    """row of `meta`"""
    recent: str
    keys: Callable[[str], Iterable[Key]]
    recent_max: int
    """keys in memory, about 200 bytes each; twice as many while the older half goes to the table"""
    slice: int

    def by_key(self, rows: Iterable[Any]) -> dict[Key, int]:
        """The newest event of each key, of rows (value, event) that `recent` found."""
        return {key: seq for value, seq in rows for key in self.keys(value)}

    def lookup(self, keys: Iterable[Key]) -> tuple[str, tuple[str]]:
        """SQL of (key, event), and its parameter, of those of these keys that are in the table."""
        sql = f"SELECT id, seq FROM {self.table} WHERE id IN (SELECT value FROM json_each(?))"
        return sql, (msgspec.json.encode(list(keys)).decode(),)


class LateIndex(Generic[Key]):
    """Made by `load`. Keys are added in the order of events, after their commit."""

    def __init__(self, kind: Kind[Key], recent: dict[Key, int]) -> None:
        self._kind: Kind[Key] = kind
        self._recent: dict[Key, int] = recent
        self._sealed: dict[Key, int] = {}  # on their way to the table; they stay here until all of them are in it
        self._ordered: Iterator[tuple[Key, int]] = iter(())
        self._slice: list[tuple[Key, int]] = []

    @classmethod
    async def load(cls, reader: aiosqlite.Connection, kind: Kind[Key]) -> "LateIndex[Key]":
        """What is not in the table yet. Raises sqlite3.Error."""
        return cls(kind, kind.by_key(await reader.execute_fetchall(kind.recent)))

    def add(self, key: Key, seq: int) -> None:
        """Event `seq` says this key."""
        self._recent[key] = seq

    async def find(self, reader: aiosqlite.Connection, keys: Iterable[Key]) -> dict[Key, int]:
        """Event by key, of those keys that are known. Raises sqlite3.Error."""
        found, rest = {}, []
        for key in keys:
            seq = self._recent.get(key) or self._sealed.get(key)
            if seq:
                found[key] = seq
            else:
                rest.append(key)
        if rest:
            rows = await reader.execute_fetchall(*self._kind.lookup(rest))
            found.update({key: seq for key, seq in rows})
        return found

    @property
    def must_move(self) -> bool:
        """True if it is time for `move`."""
        return bool(self._sealed) or len(self._recent) >= self._kind.recent_max

    async def move(self, writer: aiosqlite.Connection) -> None:
        """Write one slice to the table. Raises sqlite3.Error; the same slice is then tried again next time.

        After a crash the keys since the complete part are read from their events again: a row that is there already is
        the same, or of an earlier event.
        """
        if not self._sealed:
            self._sealed, self._recent = self._recent, {}
            self._ordered = iter(sorted(self._sealed.items()))
        self._slice = self._slice or list(islice(self._ordered, self._kind.slice))
        if self._slice:
            insert = _insert(self._kind.table, len(self._slice))
            await writer.execute(insert, [value for row in self._slice for value in row])
            self._slice = []
        else:
            complete = str(max(self._sealed.values()))
            await writer.execute("UPDATE meta SET value = ? WHERE key = ?", (complete, self._kind.complete))
            self._sealed = {}


@cache
def _insert(table: str, rows: int) -> str:
    return f"INSERT OR IGNORE INTO {table} (id, seq) VALUES {', '.join(['(?, ?)'] * rows)}"
