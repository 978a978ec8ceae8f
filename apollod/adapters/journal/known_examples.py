"""Which examples were accepted, by the journal or its archive, and in which event: an index that costs an append
almost nothing.

Content ids are random, so a row written to the index at once would dirty a page of its own, and an append would become
dearer with every example (a factor of 8 at a million). The newest ids are therefore kept in memory; when there are
many, they go to the table `example_index` in the order of the index, a slice at a time, so that one page takes several.
The table is derived: `meta.indexed_seq` says up to which event it is complete, and the view `known_examples` adds the
rest for readers.
"""

from collections.abc import Iterable
from functools import cache
from itertools import islice
from typing import NamedTuple

import aiosqlite
import msgspec

RECENT_MAX = 65_536  # ids in memory, about 12 MB; twice as many while the older half goes to the table
SLICE = 1024  # ids written at a time, a few ms

_RECENT = """
    WITH indexed AS (SELECT CAST(value AS INTEGER) AS seq FROM meta WHERE key = 'indexed_seq')
    SELECT key, seq FROM events WHERE kind = 'example.accepted' AND seq > (SELECT seq FROM indexed)
    UNION ALL
    SELECT carried.value, events.seq FROM events, json_each(events.body, '$.examples') AS carried
    WHERE events.kind = 'example.carried' AND events.seq > (SELECT seq FROM indexed)
    ORDER BY 2
"""
_INDEXED = "SELECT id, seq FROM example_index WHERE id IN (SELECT value FROM json_each(?))"
_COMPLETE = "UPDATE meta SET value = ? WHERE key = 'indexed_seq'"


class _Sealed(NamedTuple):
    """Ids on their way to the table; they stay here until all of them are in it."""

    ids: dict[str, int]
    ordered: "Iterable[tuple[str, int]]"


class KnownExamples:
    """Made by `load`. Ids are added in the order of events, after their commit."""

    def __init__(self, recent: dict[str, int]) -> None:
        self._recent = recent
        self._sealed = _Sealed({}, iter(()))
        self._slice: list[tuple[str, int]] = []

    @classmethod
    async def load(cls, reader: aiosqlite.Connection) -> "KnownExamples":
        """What is not in the table yet, at most some ten thousand ids. Raises sqlite3.Error."""
        return cls({id_: seq for id_, seq in await reader.execute_fetchall(_RECENT)})

    def add(self, id_: str, seq: int) -> None:
        """An example was accepted by event `seq`."""
        self._recent[id_] = seq

    async def find(self, reader: aiosqlite.Connection, ids: Iterable[str]) -> dict[str, int]:
        """Event by id, of those ids that are known. Raises sqlite3.Error."""
        found, rest = {}, []
        for id_ in ids:
            seq = self._recent.get(id_) or self._sealed.ids.get(id_)
            if seq:
                found[id_] = seq
            else:
                rest.append(id_)
        if rest:
            rows = await reader.execute_fetchall(_INDEXED, (msgspec.json.encode(rest).decode(),))
            found.update({id_: seq for id_, seq in rows})
        return found

    @property
    def must_move(self) -> bool:
        """Is it time for `move`?"""
        return bool(self._sealed.ids) or len(self._recent) >= RECENT_MAX

    async def move(self, writer: aiosqlite.Connection) -> None:
        """Write one slice to the table. Raises sqlite3.Error; the same slice is then tried again next time.

        After a crash the ids since `indexed_seq` are read from their events again: a row that is there already is the
        same.
        """
        if not self._sealed.ids:
            self._sealed = _Sealed(self._recent, iter(sorted(self._recent.items())))
            self._recent = {}
        self._slice = self._slice or list(islice(self._sealed.ordered, SLICE))
        if self._slice:
            await writer.execute(_insert(len(self._slice)), [value for row in self._slice for value in row])
            self._slice = []
        else:
            await writer.execute(_COMPLETE, (str(max(self._sealed.ids.values())),))
            self._sealed = _Sealed({}, iter(()))


@cache
def _insert(rows: int) -> str:
    return f"INSERT OR IGNORE INTO example_index (id, seq) VALUES {', '.join(['(?, ?)'] * rows)}"
