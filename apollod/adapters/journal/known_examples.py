"""Looks up what the journal or its archive has accepted, so that nothing is learned twice: examples by their ids,
their answers by keys, their texts by bands of signatures; and the signals that it has recorded.

Each is an index that is written late (late_index.py). The view `known_examples` adds what is not in the table yet for
readers.
"""

from collections.abc import Iterable
from typing import NamedTuple

import aiosqlite
import msgspec

from apollod.adapters.journal.late_index import Kind, LateIndex
from apollod.core.events import ExampleAccepted, SignalFlagged
from apollod.core.intake.repeats import bands

RECENT_MAX = 65_536  # keys of each kind in memory
SLICE = 1024  # rows of an index written at a time

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

Query = tuple[str, tuple[str]]
"""SQL and its parameter."""


def names_of(seqs: Iterable[int]) -> Query:
    """Of (event, the example that it accepted; empty: one of an archive)."""
    return _of_events(_NAMES, seqs)


def signatures_of(seqs: Iterable[int]) -> Query:
    """Of (example, signature)."""
    return _of_events(_SIGNED, seqs)


def _of_events(sql: str, seqs: Iterable[int]) -> Query:
    return sql.format(given="SELECT value FROM json_each(?)"), (msgspec.json.encode(sorted(set(seqs))).decode(),)


def _sql(recent: str, complete: str) -> str:
    return recent.format(after=_AFTER.format(complete=complete))


def _of_text(table: str, complete: str, recent: str) -> Kind[str]:
    return Kind(table, complete, _sql(recent, complete), lambda value: (value,), RECENT_MAX, SLICE)


def examples_kind() -> Kind[str]:
    """Of examples, by their ids."""
    return _of_text("example_index", "indexed_seq", _EXAMPLES)


def responses_kind() -> Kind[str]:
    """Of answers, by their keys."""
    return _of_text("response_index", "responses_indexed_seq", _RESPONSES)


def bands_kind() -> Kind[int]:
    """Of texts. One has 16 bands, so slices are longer, or a busy source would be faster than they are written."""
    recent = _sql(_SIGNATURES, "near_indexed_seq")
    return Kind("near_index", "near_indexed_seq", recent, bands, RECENT_MAX, 8 * SLICE)


class Known(NamedTuple):
    """Made by `load`; what is accepted is added in the order of events, after its commit."""

    examples: LateIndex[str]
    responses: LateIndex[str]
    bands: LateIndex[int]
    signals: LateIndex[str]

    @classmethod
    async def load(cls, reader: aiosqlite.Connection) -> "Known":
        """What is not in the tables yet, at most some ten thousand keys of each kind. Raises sqlite3.Error."""
        return cls(
            await LateIndex.load(reader, examples_kind()),
            await LateIndex.load(reader, responses_kind()),
            await LateIndex.load(reader, bands_kind()),
            await LateIndex.load(reader, _of_text("signal_index", "signals_indexed_seq", _SIGNALS)),
        )

    def add(self, event: ExampleAccepted | SignalFlagged, seq: int) -> None:
        """An example was accepted, or a signal recorded, by event `seq`."""
        if isinstance(event, SignalFlagged):
            self.signals.add(event.signal, seq)
            return
        self.examples.add(event.example, seq)
        for key in event.responses:
            self.responses.add(key, seq)
        if event.signature:
            for band in bands(event.signature):
                self.bands.add(band, seq)

    async def learned_by(self, reader: aiosqlite.Connection, keys: Iterable[str]) -> dict[str, str]:
        """The example that learned each of these answers, of those that are known; empty for one of an archive. Raises
        sqlite3.Error."""
        found = await self.responses.find(reader, keys)
        names = {seq: name for seq, name in await reader.execute_fetchall(*names_of(found.values()))} if found else {}
        return {key: names[seq] for key, seq in found.items()}

    async def like(self, reader: aiosqlite.Connection, signatures: Iterable[str]) -> dict[str, str]:
        """Signatures, by example, of those that have a band in common with one of these. Raises sqlite3.Error."""
        wanted = {band for signature in signatures for band in bands(signature)}
        found = await self.bands.find(reader, wanted) if wanted else {}
        if not found:
            return {}
        return {name: signed for name, signed in await reader.execute_fetchall(*signatures_of(found.values()))}

    @property
    def must_move(self) -> bool:
        """True if it is time for `move`."""
        return any(index.must_move for index in self)

    async def move(self, writer: aiosqlite.Connection) -> None:
        """Write a slice of each index for which it is time. Raises sqlite3.Error."""
        for index in self:
            if index.must_move:
                await index.move(writer)
