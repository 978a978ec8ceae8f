"""The journal's one writer.

Law: `append` returns only after the events are on disk (WAL, synchronous=FULL), in the order of the calls, numbered
without gaps and chained. One task owns the writing connection and puts everything that waits into one transaction: the
fsync before it is the batching window, no timer is needed. Reading goes through a connection of its own, so that nobody sees
an event before its commit. What failed is never tried again here: the caller is told, and the head is read anew.
"""

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

import aiosqlite
import anyio
import msgspec

from apollod.adapters.clock import now_ns
from apollod.adapters.files import fsync_dir
from apollod.adapters.journal_reader import check_application, explain
from apollod.adapters.migrate import load, migrate
from apollod.core.events import Event, ExampleAccepted, Recorded
from apollod.errors import JournalError
from apollod.wire.journal import GENESIS, chain, decode_event, encode_body

QUEUE_APPENDS_MAX = 1024  # appends that wait; more callers are held back
BATCH_EVENTS_MAX = 1024  # per transaction, overshot by at most one append; chaining them holds the event loop for about 8 ms
BATCH_BYTES_MAX = 8 << 20
PAGE_EVENTS = 256  # read at a time, so that no read transaction keeps the write-ahead log from being reused
BUSY_MS = 5000  # patience with a foreign lock

_PRAGMAS: tuple[tuple[str, str, Any], ...] = (  # name, value, what it reads back as
    ("journal_mode", "WAL", "wal"),
    ("synchronous", "FULL", 2),
    ("busy_timeout", str(BUSY_MS), BUSY_MS),
    ("wal_autocheckpoint", "4000", 4000),  # pages; SQLite then copies what it can, between two of our transactions
    ("journal_size_limit", str(256 << 20), 256 << 20),
    ("trusted_schema", "OFF", 0),
    ("cell_size_check", "ON", 1),
    ("mmap_size", "0", 0),
)
_READ_PRAGMAS = (("busy_timeout", str(BUSY_MS), BUSY_MS), ("query_only", "ON", 1), ("trusted_schema", "OFF", 0))

_INSERT = "INSERT INTO events (seq, at_ns, kind, version, key, body, prev_hash, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_INSERT_KNOWN = "INSERT INTO known_examples (id, seq) VALUES (?, ?)"
_SELECT = "SELECT seq, at_ns, kind, version, key, body, prev_hash, hash FROM events"
_RECORDS = """
    SELECT id, kind, version, body FROM known_examples JOIN events USING (seq)
    WHERE id IN (SELECT value FROM json_each(?))
"""


class _Head(NamedTuple):
    """The newest event's number and hash."""

    seq: int
    hash: bytes


class _Append(NamedTuple):
    """One caller's events, encoded, and where it waits."""

    events: Sequence[Event]
    bodies: list[bytes]
    at_ns: int
    done: asyncio.Future[list[Recorded]]


class Journal:
    """An open journal; made by `open`. All methods belong to one event loop."""

    def __init__(self, path: Path, writer: aiosqlite.Connection, reader: aiosqlite.Connection, head: _Head) -> None:
        self._path = path
        self._writer = writer
        self._reader = reader
        self._head = head
        self._doubtful = False
        self._closed = False
        self._send, self._receive = anyio.create_memory_object_stream[_Append](QUEUE_APPENDS_MAX)
        # Not in the caller's task group: what was asked for before a cancellation still gets written and answered.
        self._task = asyncio.create_task(self._write_forever(), name="journal-writer")

    @classmethod
    async def open(cls, path: str | Path) -> "Journal":
        """Open the journal, make it if there is none, and bring its schema up to date.

        Raises JournalError, and changes nothing, for a file that is damaged, not ours, from a newer apollod or not writable.
        """
        path = Path(path)
        # Shielded: a connection that is half open would leave its thread behind, and the process could not end.
        with anyio.CancelScope(shield=True):
            try:
                await anyio.to_thread.run_sync(_prepare, path)
                async with AsyncExitStack() as stack:
                    writer = await _connect(stack, path, "rw", _PRAGMAS)
                    reader = await _connect(stack, path, "ro", _READ_PRAGMAS)
                    head = await _read_head(writer, path)
                    stack.pop_all()
            except sqlite3.Error as error:
                raise explain(path, error) from error
        return cls(path, writer, reader, head)

    @property
    def head(self) -> tuple[int, str]:
        """Number and hash (hex) of the newest durable event; (0, zeros) when there is none."""
        return self._head.seq, self._head.hash.hex()

    def size_bytes(self) -> int:
        """Bytes on disk, the write-ahead log included."""
        files = (self._path, self._path.with_name(f"{self._path.name}-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    async def append(self, events: Sequence[Event], at_ns: int) -> list[Recorded]:
        """Record events in one transaction; when this returns they are durable.

        Waits while more than QUEUE_APPENDS_MAX calls are ahead. Raises JournalError when they were not recorded
        (`retryable`: a full disk or a foreign lock). A caller that is cancelled does not know whether they were.
        """
        if not events:
            return []
        bodies = [encode_body(event) for event in events]
        waiting = _Append(events, bodies, at_ns, asyncio.get_running_loop().create_future())
        try:
            await self._send.send(waiting)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            raise JournalError(f"the journal {self._path} is closed") from None
        return await waiting.done

    async def read(
        self, after_seq: int = 0, kinds: Collection[str] | None = None, limit: int | None = None
    ) -> AsyncIterator[Recorded]:
        """Events after `after_seq` in order; with no `kinds` given, their chain is checked on the way.

        Raises JournalError, naming the sequence number, at an event that is missing, changed or not known to this code.
        """
        previous: _Head | None = _Head(0, GENESIS) if after_seq == 0 else None
        left = limit
        while left is None or left > 0:
            page = PAGE_EVENTS if left is None else min(left, PAGE_EVENTS)
            rows = await self._page(after_seq, kinds, page)
            for seq, at_ns, kind, version, key, body, prev_hash, hash_ in rows:
                if kinds is None:
                    expected = _Head(seq - 1, prev_hash) if previous is None else previous
                    data = body.encode()
                    if expected != (seq - 1, prev_hash) or chain(prev_hash, seq, at_ns, kind, version, key, data) != hash_:
                        raise _broken_chain(self._path, expected.seq + 1)
                    previous = _Head(seq, hash_)
                yield Recorded(seq, at_ns, _decode(seq, kind, version, body))
            if len(rows) < page:
                return
            after_seq = rows[-1][0]
            left = None if left is None else left - page

    async def known(self, ids: Iterable[str]) -> set[str]:
        """Those of `ids` that are examples accepted already."""
        sql = "SELECT id FROM known_examples WHERE id IN (SELECT value FROM json_each(?))"
        return {id_ for (id_,) in await self._fetch(sql, (_json_list(ids),))}

    async def record_of(self, example_id: str) -> bytes | None:
        """The canonical record of an accepted example."""
        return (await self.records_of([example_id])).get(example_id)

    async def records_of(self, ids: Iterable[str]) -> dict[str, bytes]:
        """Canonical records by example id; unknown ids are left out. The caller bounds how many."""
        records = {}
        for id_, kind, version, body in await self._fetch(_RECORDS, (_json_list(ids),)):
            event = decode_event(kind, version, body)
            assert isinstance(event, ExampleAccepted)
            records[id_] = bytes(event.record)
        return records

    async def close(self) -> None:
        """Write what waits, move the write-ahead log into the file, close. Later appends are refused; may be repeated."""
        if self._closed:
            return
        self._closed = True
        self._send.close()
        with anyio.CancelScope(shield=True):
            async with AsyncExitStack() as stack:
                stack.push_async_callback(self._writer.close)
                stack.push_async_callback(self._reader.close)
                await self._task
                try:
                    await self._writer.rollback()  # what a failed commit left
                    await self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                except sqlite3.Error as error:
                    raise explain(self._path, error) from error

    # --- writing ----------------------------------------------------------------------------------------------------

    async def _write_forever(self) -> None:
        batch: list[_Append] = []
        try:
            async for first in self._receive:
                batch = self._drain(first)
                await self._write(batch)
        finally:
            # Reached with callers waiting only through a bug; they must not wait for ever.
            while self._receive.statistics().current_buffer_used:
                batch.append(self._receive.receive_nowait())
            self._receive.close()
            for waiting in batch:
                if not waiting.done.done():
                    waiting.done.set_exception(JournalError(f"the journal {self._path} stopped", "restart the daemon"))

    def _drain(self, first: _Append) -> list[_Append]:
        """Everything that waits now, up to the limits of a batch."""
        batch, count, size = [first], len(first.events), sum(map(len, first.bodies))
        while count < BATCH_EVENTS_MAX and size < BATCH_BYTES_MAX:
            try:
                following = self._receive.receive_nowait()
            except (anyio.WouldBlock, anyio.EndOfStream):
                break
            batch.append(following)
            count += len(following.events)
            size += sum(map(len, following.bodies))
        return batch

    async def _write(self, batch: list[_Append]) -> None:
        """One transaction; then every caller of the batch is answered, all with success or all with the error."""
        try:
            if self._doubtful:
                await self._settle()
            rows, known, answers, head = _chained(batch, self._head)
            # isolation_level IMMEDIATE: the first statement begins the transaction. Each await is a hop to
            # the connection's thread and back, about 0.1 ms.
            await self._writer.executemany(_INSERT, rows)
            if known:
                await self._writer.executemany(_INSERT_KNOWN, known)
            await self._writer.commit()
        except (sqlite3.Error, JournalError) as error:
            self._doubtful = True
            for waiting in batch:
                if not waiting.done.done():
                    failure = explain(self._path, error) if isinstance(error, sqlite3.Error) else error
                    waiting.done.set_exception(failure)
            return
        self._head = head
        for waiting, recorded in zip(batch, answers, strict=True):
            if not waiting.done.done():  # else its caller was cancelled
                waiting.done.set_result(recorded)

    async def _settle(self) -> None:
        """After a failure: give up the transaction and make sure that the journal ends where it ended before.

        A head that moved means that the failed commit took effect after all, or that somebody else writes; memory
        and journal then disagree, which only a new start, with a new fold, repairs.
        """
        await self._writer.rollback()
        if await _read_head(self._writer, self._path) != self._head:
            raise JournalError(
                f"the journal {self._path} holds events that its writer does not know",
                "see that nothing else writes to it, and restart the daemon",
            )
        self._doubtful = False

    # --- reading ----------------------------------------------------------------------------------------------------

    async def _page(self, after_seq: int, kinds: Collection[str] | None, limit: int) -> list[Any]:
        # The plus sign keeps SQLite from gathering and sorting all events of these kinds for every page.
        where = "" if kinds is None else " AND +kind IN (SELECT value FROM json_each(?))"
        parameters = (after_seq, limit) if kinds is None else (after_seq, _json_list(kinds), limit)
        return await self._fetch(f"{_SELECT} WHERE seq > ?{where} ORDER BY seq LIMIT ?", parameters)

    async def _fetch(self, sql: str, parameters: Sequence[Any]) -> list[Any]:
        try:
            return list(await self._reader.execute_fetchall(sql, parameters))
        except sqlite3.Error as error:
            raise explain(self._path, error) from error


def _chained(
    batch: list[_Append], head: _Head
) -> tuple[list[tuple[Any, ...]], list[tuple[str, int]], list[list[Recorded]], _Head]:
    """Rows of `events` and of `known_examples`, the answer to each append, and the head after them."""
    rows: list[tuple[Any, ...]] = []
    known: list[tuple[str, int]] = []
    answers: list[list[Recorded]] = []
    seq, prev = head
    for append in batch:
        recorded = []
        for event, body in zip(append.events, append.bodies, strict=True):
            seq += 1
            key = event.key()
            hash_ = chain(prev, seq, append.at_ns, event.kind, event.version, key, body)
            rows.append((seq, append.at_ns, event.kind, event.version, key, body.decode(), prev, hash_))
            if isinstance(event, ExampleAccepted):
                known.append((event.example, seq))
            recorded.append(Recorded(seq, append.at_ns, event))
            prev = hash_
        answers.append(recorded)
    return rows, known, answers, _Head(seq, prev)


def _prepare(path: Path) -> None:
    """Make the file if there is none, refuse one that is not ours, apply migrations. Blocking."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)  # the log files take over this mode
        try:
            begin = os.pread(fd, 16, 0)
        finally:
            os.close(fd)
        fsync_dir(path.parent)
    except OSError as error:
        raise JournalError(
            f"the journal {path} cannot be opened for writing: {error.strerror}", "check [state] dir, its owner, mode and disk"
        ) from error
    if begin and begin != b"SQLite format 3\0":
        raise JournalError(f"{path} is not a SQLite database", "it was left as it is; give another [state] dir or move it away")
    try:
        with closing(sqlite3.connect(path, timeout=BUSY_MS / 1000, isolation_level=None)) as db:
            check_application(db, path)
            migrate(db, path, load(), now_ns())
    except sqlite3.Error as error:
        raise explain(path, error) from error


async def _connect(
    stack: AsyncExitStack, path: Path, mode: str, pragmas: Sequence[tuple[str, str, Any]]
) -> aiosqlite.Connection:
    """A connection, closed by `stack`, with these pragmas in force."""
    connection = await stack.enter_async_context(aiosqlite.connect(_uri(path, mode), uri=True, isolation_level="IMMEDIATE"))
    for name, value, expected in pragmas:
        await connection.execute(f"PRAGMA {name} = {value}")
        ((found,),) = await connection.execute_fetchall(f"PRAGMA {name}")
        if found != expected:
            raise JournalError(
                f"SQLite does not accept {name} = {value} for {path} (it says {found})", "put [state] dir on a local disk"
            )
    return connection


def _uri(path: Path, mode: str) -> str:
    return f"{path.absolute().as_uri()}?mode={mode}"


async def _read_head(connection: aiosqlite.Connection, path: Path) -> _Head:
    """The newest event, whose own hash is checked. Raises JournalError, sqlite3.Error."""
    rows = list(await connection.execute_fetchall(f"{_SELECT} ORDER BY seq DESC LIMIT 1"))
    if not rows:
        return _Head(0, GENESIS)
    seq, at_ns, kind, version, key, body, prev_hash, hash_ = rows[0]
    if chain(prev_hash, seq, at_ns, kind, version, key, body.encode()) != hash_:
        raise _broken_chain(path, seq)
    return _Head(seq, hash_)


def _broken_chain(path: Path, seq: int) -> JournalError:
    return JournalError(
        f"the journal {path} was edited: event {seq} is missing or does not match its hash",
        "nothing was written; restore a backup",
    )


def _decode(seq: int, kind: str, version: int, body: str) -> Event:
    try:
        return decode_event(kind, version, body)
    except JournalError as error:
        raise JournalError(f"event {seq}: {error}", error.hint) from error


def _json_list(values: Iterable[str]) -> str:
    return msgspec.json.encode(list(values)).decode()
