"""Looks up what the journal or its archive has accepted, so that nothing is learned twice: examples by their ids,
their answers by keys, their texts by bands of signatures; and the signals that it has recorded.

Each has an index table that is written late and in its own order, so that it costs an append almost nothing. Its keys
are random: a row written at once would dirty a page of its own, and an append would become dearer with every one (a
factor of 8 at a million). The newest keys are therefore kept in memory; when there are many, they go to the table in
its order, a slice at a time, so that one page takes several. The tables are derived: a row of `meta` says up to which
event each is complete. The view `known_examples` adds what is not in the table yet for readers.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import aiosqlite
import msgspec

from apollod.adapters.journal.journal_file import reading
from apollod.core.events import ExampleAccepted, SignalFlagged
from apollod.core.facts.intake import repeats
from apollod.core.inputs import Line

RECENT_MAX = 65_536  # keys of each kind in memory
SLICE = 1024  # rows of an index written at a time

Key = TypeVar("Key", str, int)

_AFTER = "seq > (SELECT CAST(value AS INTEGER) FROM meta WHERE key = '{complete}')"
_EXAMPLES = """
    SELECT key, seq FROM events WHERE kind = 'example.accepted' AND {after}
    UNION ALL
    SELECT carried.value, events.seq FROM events, json_each(events.body, '$.examples') AS carried
    WHERE events.kind = 'example.carried' AND {after}
    ORDER BY 2
"""
_RESPONSES = """
    SELECT response.value, events.seq FROM events, json_each(events.body, '$.responses') AS response
    WHERE events.kind IN ('example.accepted', 'example.carried') AND {after} ORDER BY 2
"""
_SIGNATURES = """
    SELECT body ->> '$.signature', seq FROM events
    WHERE kind = 'example.accepted' AND coalesce(body ->> '$.signature', '') <> '' AND {after} ORDER BY 2
"""
_SIGNALS = """
    SELECT key, seq FROM events WHERE kind = 'signal.flagged' AND {after}
    UNION ALL
    SELECT carried.value, events.seq FROM events, json_each(events.body, '$.signals') AS carried
    WHERE events.kind = 'example.carried' AND {after}
    ORDER BY 2
"""
_NAMES = "SELECT seq, CASE kind WHEN 'example.accepted' THEN key ELSE '' END FROM events WHERE seq IN ({given})"
_SIGNED = "SELECT key, body ->> '$.signature' FROM events WHERE seq IN ({given})"


# --- the tables ---------------------------------------------------------------------------------------------------


class Kind(NamedTuple, Generic[Key]):
    """One index table and its keys. `recent`: SQL of (value, event) after the event up to which the table is complete,
    in the order of events; `keys`: of such a value; `slice`: rows written at a time, a few ms for a thousand."""

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
        """The query for (key, event) of the given keys that are in the table: SQL and its parameter."""
        sql = f"SELECT id, seq FROM {self.table} WHERE id IN (SELECT value FROM json_each(?))"
        return sql, (msgspec.json.encode(list(keys)).decode(),)


def _sql(recent: str, complete: str) -> str:
    return recent.format(after=_AFTER.format(complete=complete))


def _of_text(table: str, complete: str, recent: str) -> Kind[str]:
    return Kind(table, complete, _sql(recent, complete), lambda value: (value,), RECENT_MAX, SLICE)


def examples_kind() -> Kind[str]:
    """The index of accepted examples, by their ids."""
    return _of_text("example_index", "indexed_seq", _EXAMPLES)


def responses_kind() -> Kind[str]:
    """The index of answers, by their keys."""
    return _of_text("response_index", "responses_indexed_seq", _RESPONSES)


def bands_kind() -> Kind[int]:
    """The index of similar texts. A text has 16 bands, so slices are longer, to keep up with a busy source."""
    recent = _sql(_SIGNATURES, "near_indexed_seq")
    return Kind("near_index", "near_indexed_seq", recent, repeats.bands, RECENT_MAX, 8 * SLICE)


def signals_kind() -> Kind[str]:
    """The index of recorded signals, by their ids."""
    return _of_text("signal_index", "signals_indexed_seq", _SIGNALS)


def kinds() -> tuple[Kind[str] | Kind[int], ...]:
    """All index tables."""
    return examples_kind(), responses_kind(), bands_kind(), signals_kind()


def fill(db: sqlite3.Connection, kind: Kind[str] | Kind[int]) -> None:
    """Make an empty index table complete, each key with the first event that has it; within the caller's transaction.
    Raises sqlite3.Error."""
    db.create_function("keys_of", 1, lambda value: msgspec.json.encode(list(kind.keys(value))).decode())
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, '0')", (kind.complete,))
    db.execute(
        f"WITH recent (value, seq) AS ({kind.recent}) INSERT INTO {kind.table} (id, seq) "
        "SELECT key.value, min(seq) FROM recent, json_each(keys_of(recent.value)) AS key GROUP BY 1 ORDER BY 1"
    )
    db.execute("UPDATE meta SET value = (SELECT coalesce(max(seq), 0) FROM events) WHERE key = ?", (kind.complete,))


Query = tuple[str, tuple[str]]
"""SQL and its parameter."""


def names_of(seqs: Iterable[int]) -> Query:
    """The query for (event, id of the example that it accepted; empty for examples of an archive)."""
    return _of_events(_NAMES, seqs)


def signatures_of(seqs: Iterable[int]) -> Query:
    """The query for (example, signature)."""
    return _of_events(_SIGNED, seqs)


def _of_events(sql: str, seqs: Iterable[int]) -> Query:
    return sql.format(given="SELECT value FROM json_each(?)"), (msgspec.json.encode(sorted(set(seqs))).decode(),)


# --- of the writer ------------------------------------------------------------------------------------------------


class LateIndex(Generic[Key]):
    """An index that is written late, made by `load`. Keys are added in the order of events, after their commit."""

    def __init__(self, kind: Kind[Key], recent: dict[Key, int]) -> None:
        self._kind: Kind[Key] = kind
        self._recent: dict[Key, int] = recent
        self._sealed: dict[Key, int] = {}  # on their way to the table; they stay here until all of them are in it
        self._ordered: Iterator[tuple[Key, int]] = iter(())
        self._slice: list[tuple[Key, int]] = []

    @classmethod
    async def load(cls, reader: aiosqlite.Connection, kind: Kind[Key]) -> "LateIndex[Key]":
        """Read the keys that are not in the table yet. Raises sqlite3.Error."""
        return cls(kind, kind.by_key(await reader.execute_fetchall(kind.recent)))

    def add(self, key: Key, seq: int) -> None:
        """Add a key of event `seq`."""
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
            insert = (
                f"INSERT OR IGNORE INTO {self._kind.table} (id, seq) VALUES {', '.join(['(?, ?)'] * len(self._slice))}"
            )
            await writer.execute(insert, [value for row in self._slice for value in row])
            self._slice = []
        else:
            complete = str(max(self._sealed.values()))
            await writer.execute("UPDATE meta SET value = ? WHERE key = ?", (complete, self._kind.complete))
            self._sealed = {}


class Known(NamedTuple):
    """All indexes of the writer, made by `load`; examples and signals are added in the order of events, after their
    commit."""

    examples: LateIndex[str]
    responses: LateIndex[str]
    bands: LateIndex[int]
    signals: LateIndex[str]

    @classmethod
    async def load(cls, reader: aiosqlite.Connection) -> "Known":
        """Read the keys that are not in the tables yet, at most some ten thousand of each kind. Raises
        sqlite3.Error."""
        return cls(
            await LateIndex.load(reader, examples_kind()),
            await LateIndex.load(reader, responses_kind()),
            await LateIndex.load(reader, bands_kind()),
            await LateIndex.load(reader, signals_kind()),
        )

    def add(self, event: ExampleAccepted | SignalFlagged, seq: int) -> None:
        """Add an example that event `seq` accepted, or a signal that it recorded."""
        if isinstance(event, SignalFlagged):
            self.signals.add(event.signal, seq)
            return
        self.examples.add(event.example, seq)
        for key in event.responses:
            self.responses.add(key, seq)
        if event.signature:
            for band in repeats.bands(event.signature):
                self.bands.add(band, seq)

    async def learned_by(self, reader: aiosqlite.Connection, keys: Iterable[str]) -> dict[str, str]:
        """The example that learned each of these answers, of those that are known; empty for one of an archive. Raises
        sqlite3.Error."""
        found = await self.responses.find(reader, keys)
        names = {seq: name for seq, name in await reader.execute_fetchall(*names_of(found.values()))} if found else {}
        return {key: names[seq] for key, seq in found.items()}

    async def like(self, reader: aiosqlite.Connection, signatures: Iterable[str]) -> dict[str, str]:
        """Signatures, by example, of those that have a band in common with one of these. Raises sqlite3.Error."""
        wanted = {band for signature in signatures for band in repeats.bands(signature)}
        found = await self.bands.find(reader, wanted) if wanted else {}
        if not found:
            return {}
        return {name: signed for name, signed in await reader.execute_fetchall(*signatures_of(found.values()))}

    @property
    def must_move(self) -> bool:
        """True if it is time for `move`."""
        return any(index.must_move for index in self)

    async def move(self, writer: aiosqlite.Connection) -> None:
        """Write a slice of each index whose time it is. Raises sqlite3.Error."""
        for index in self:
            if index.must_move:
                await index.move(writer)


# --- of readers ---------------------------------------------------------------------------------------------------


class KnownLines:
    """Keys that a journal knows when it is opened (`opened`), for lines that were not given to its daemon yet."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._examples = _recent(db, examples_kind())
        self._responses = _recent(db, responses_kind())
        self._bands = _recent(db, bands_kind())

    def tell(self, known: repeats.Known, lines: Iterable[Line], near: bool) -> None:
        """Tell `known` of what the journal has of these lines. `near`: also texts that resemble theirs."""
        lines = list(lines)
        examples = self._find(examples_kind(), self._examples, {line.example for line in lines})
        keys = self._find(responses_kind(), self._responses, {one.key for line in lines for one in line.responses})
        names = dict(self._db.execute(*names_of(keys.values())))
        wanted = {band for line in lines if near and line.signature for band in repeats.bands(line.signature)}
        like = self._find(bands_kind(), self._bands, wanted)
        signed = dict(self._db.execute(*signatures_of(like.values())))
        known.tell(set(examples), {key: names[seq] for key, seq in keys.items()}, signed)

    def _find(self, kind: Kind[Key], recent: dict[Key, int], keys: set[Key]) -> dict[Key, int]:
        """Event by key, of those that are known."""
        found: dict[Key, int] = dict(self._db.execute(*kind.lookup(keys - recent.keys())))
        return found | {key: recent[key] for key in keys & recent.keys()}


def _recent(db: sqlite3.Connection, kind: Kind[Key]) -> dict[Key, int]:
    """Keys that are not in the table yet."""
    return kind.by_key(db.execute(kind.recent))


@contextmanager
def opened(path: str | Path) -> Iterator[KnownLines]:
    """Open a journal for look-ups of lines, changing nothing. Raises JournalError."""
    with reading(path) as db:
        yield KnownLines(db)
