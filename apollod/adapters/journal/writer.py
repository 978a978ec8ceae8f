"""The journal's one writer.

Law: `append` returns only after the events are on disk (WAL, synchronous=FULL), in the order of the calls, numbered
without gaps and chained. One task owns the writing connection and puts everything that waits into one transaction: the
fsync before it is the batching window, no timer is needed. Reading goes through a connection of its own, so that no
reader sees an event before its commit. An append that failed is never tried again here: the caller is told, and the
head is read anew. A reading that the disk refuses is tried again for a minute.
After an error of the disk (a write or fsync that failed) nothing more is written or moved through that connection: the
kernel may have dropped pages that SQLite believes to be written, so only a new process, which reads the disk, knows
what is there. The same holds once the file or its log is not at its path any more: the next process would not find what
goes there.

Most batches are one statement in autocommit: each statement is a hop to the connection's thread and back (about 0.1 ms,
a third of a commit), and within one SQLite inserts all rows without Python's lock, while the event loop encodes the
next ones.
"""

import asyncio
import sqlite3
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from itertools import repeat
from pathlib import Path
from typing import Any, TypeVar

import aiosqlite
import anyio
import msgspec
import structlog

from apollod.adapters.journal import blobs
from apollod.adapters.journal.journal_connection import (
    READ_PRAGMAS,
    SELECT,
    WRITE_PRAGMAS,
    Head,
    checked,
    connect,
    prepare,
    read_again,
    read_head,
)
from apollod.adapters.journal.journal_file import InUse, explain, is_of_disk, log_of, resolved
from apollod.adapters.journal.journal_reader import Snapshot
from apollod.adapters.journal.known_examples import Known
from apollod.adapters.journal.row_batch import Batch, Done, Waiting, take
from apollod.adapters.system.clock import now_ns
from apollod.core.events import Event, ExampleAccepted, FeedbackGiven, FollowUpNoted, Recorded, SignalFlagged
from apollod.errors import JournalError
from apollod.explain import reason
from apollod.failpoints import failpoint
from apollod.wire.event_codec import decode_event, encode_body

log = structlog.get_logger()

Answer = TypeVar("Answer")

SNAPSHOTS_KEPT = 2

_FEEDBACK = """
    SELECT seq, kind, version, key, CAST(body AS BLOB) FROM events
    WHERE kind = 'feedback.given' AND key IN (SELECT value FROM json_each(?)) ORDER BY seq
"""
_RECORDS = f"{SELECT} WHERE seq IN (SELECT value FROM json_each(?))"


class Journal:
    """An open journal; made by `open`. All methods belong to one event loop."""

    def __init__(
        self,
        path: Path,
        in_use: InUse,
        writer: aiosqlite.Connection,
        reader: aiosqlite.Connection,
        head: Head,
        known: Known,
    ) -> None:
        self._path = path
        self._in_use = in_use
        self._writer = writer
        self._reader = reader
        self._head = head
        self._known = known
        self._doubtful = False
        self._failure: JournalError | None = None
        self._closed = False
        self._waiting: deque[Waiting] = deque()
        self._writing = Batch([], [], [], [])
        self._arrived = asyncio.Event()
        self._new_caller: Callable[[], Done] = asyncio.get_running_loop().create_future
        self._snapshot: tuple[str, Snapshot] | None = None
        # Not in the caller's task group: what was asked for before a cancellation still gets written and answered.
        self._task = asyncio.create_task(self._write_forever(), name="journal-writer")

    @classmethod
    async def open(cls, path: str | Path) -> "Journal":
        """Open the journal, make it if there is none, and bring its schema up to date.

        Raises JournalError, and changes nothing, for a file that is damaged, not ours, from a newer apollod or not
        writable.
        """
        path = Path(path)
        file = resolved(path)
        # Shielded: a connection that is half open would leave its thread behind, and the process could not end.
        with anyio.CancelScope(shield=True):
            try:
                await anyio.to_thread.run_sync(prepare, file)
                async with AsyncExitStack() as stack:
                    writer = await connect(stack, file, "rw", WRITE_PRAGMAS)
                    reader = await connect(stack, file, "ro", READ_PRAGMAS)
                    head = await read_head(writer, path)
                    known = await Known.load(reader)
                    in_use = InUse(path)  # both have read by now, so that the log is there
                    stack.pop_all()
            except sqlite3.Error as error:
                raise explain(path, error) from error
        return cls(path, in_use, writer, reader, head, known)

    @property
    def head(self) -> tuple[int, str]:
        """Number and hash (hex) of the newest durable event; (0, zeros) when there is none."""
        return self._head.seq, self._head.hash.hex()

    def size_bytes(self) -> int:
        """Bytes on disk, the write-ahead log included."""
        return sum(file.stat().st_size for file in (self._path, log_of(self._path)) if file.exists())

    async def append(self, events: Sequence[Event], at_ns: int) -> list[Recorded]:
        """Record events in one transaction; when this returns they are durable.

        The caller waits, which is all the back-pressure there is: nothing queues here that no caller waits for. Raises
        JournalError when they were not recorded (`retryable`: a full disk or a foreign lock). A caller that is
        cancelled does not know whether they were.
        """
        if not events:
            return []
        if self._closed:
            raise JournalError(f"the journal {self._path} is closed")
        if len(events) == 1:  # nearly always
            (event,) = events
            body, done = encode_body(event), self._new_caller()
            self._waiting.append((event, body, at_ns, done))
        else:
            bodies = [encode_body(event) for event in events]  # first, so that all wait or none
            done = self._new_caller()
            callers = [*repeat(None, len(events) - 1), done]
            self._waiting.extend(zip(events, bodies, repeat(at_ns), callers, strict=False))
        self._arrived.set()
        return await done

    async def known(self, ids: Iterable[str]) -> set[str]:
        """The ids of examples that were accepted already."""
        return set(await self._find(ids))

    async def learned_by(self, responses: Iterable[str]) -> dict[str, str]:
        """The example that learned each of these answers, by their keys, of those that are known; an empty name for one
        of an archive."""
        return await self._ask(self._known.learned_by, self._reader, list(responses))

    async def flagged(self, signals: Iterable[str]) -> set[str]:
        """The ids of signals that are recorded already."""
        return set(await self._ask(self._known.signals.find, self._reader, list(signals)))

    async def like(self, signatures: Iterable[str]) -> dict[str, str]:
        """Signatures, by example, of accepted texts that may resemble one with these signatures."""
        return await self._ask(self._known.like, self._reader, list(signatures))

    async def records_of(self, ids: Iterable[str]) -> dict[str, bytes]:
        """Canonical records, with the tokens of answers that are known and with their teachers, by example id; unknown
        ids are left out. The caller bounds how many.

        Raises ChainBroken for one that is not as it was recorded: it is learned from next.
        """
        found = await self.accepted_of(ids)
        directories = [self._path.parent / blobs.NAME]
        compared = [id_ for id_, event in found.items() if blobs.wants_reference(event)]
        names = msgspec.json.encode(compared).decode()
        references = dict(await self._fetch(blobs.REFERENCES, (names,))) if compared else {}

        def lessons() -> dict[str, bytes]:
            return {id_: blobs.lesson(event, directories, references.get(id_, "")) for id_, event in found.items()}

        if references or any(event.teacher for event in found.values()):
            return await anyio.to_thread.run_sync(lessons)
        return lessons()

    async def keep_file(self, data: bytes) -> str:
        """Have a file beside the journal, durably; its digest. Raises JournalError."""
        directory = self._path.parent / blobs.NAME
        try:
            return await anyio.to_thread.run_sync(blobs.keep, directory, data)
        except OSError as error:
            raise JournalError(
                f"{directory} cannot be written: {reason(error)}", "make room, or repair the disk"
            ) from error

    async def accepted_of(self, ids: Iterable[str]) -> dict[str, ExampleAccepted]:
        """The acceptance of each example, by id; see `records_of`."""
        seqs = msgspec.json.encode(list((await self._find(ids)).values())).decode()
        found = {}
        for row in await self._fetch(_RECORDS, (seqs,)):
            checked(row, self._path)
            _, _, kind, version, id_, body, _, _ = row
            event = decode_event(kind, version, body)
            assert isinstance(event, ExampleAccepted)
            found[id_] = event
        return found

    async def signals_of(self, example: str) -> list[SignalFlagged]:
        """Evidence from logs about the answers of an example, in order. Raises JournalError."""
        sql = """SELECT kind, version, body FROM events WHERE kind = ? AND (body ->> '$.example' = ? OR EXISTS (
            SELECT 1 FROM json_each(body, '$.also') AS other WHERE other.value = ?)) ORDER BY seq"""
        rows = await self._fetch(sql, (SignalFlagged.kind, example, example))
        decoded = (decode_event(kind, version, body) for kind, version, body in rows)
        return [event for event in decoded if isinstance(event, SignalFlagged)]

    async def followed(self, example: str) -> FollowUpNoted | None:
        """The user's newest follow-up to the answer of an example. Raises JournalError."""
        sql = "SELECT kind, version, body FROM events WHERE kind = ? AND key = ? ORDER BY seq DESC LIMIT 1"
        for kind, version, body in await self._fetch(sql, (FollowUpNoted.kind, example)):
            event = decode_event(kind, version, body)
            assert isinstance(event, FollowUpNoted)
            return event
        return None

    async def feedback(self, responses: Iterable[str]) -> dict[str, list[tuple[int, FeedbackGiven]]]:
        """All that was said of each of these answers, with the number of the event, of those that were rated."""
        names = msgspec.json.encode(sorted(set(responses))).decode()
        found = dict[str, list[tuple[int, FeedbackGiven]]]()
        for seq, kind, version, key, body in await self._fetch(_FEEDBACK, (names,)):
            event = decode_event(kind, version, body)
            assert isinstance(event, FeedbackGiven)
            found.setdefault(key, []).append((seq, event))
        return found

    def leave_snapshot(self, code: str, seq: int, state: bytes) -> None:
        """Keep a folded state for the next start. Written after the next batch or at once: a cache.

        `seq` is the newest event. An older snapshot that was not written yet is forgotten.
        """
        assert seq == self._head.seq
        self._snapshot = (code, Snapshot(seq, self._head.hash, state))
        self._arrived.set()

    async def close(self) -> None:
        """Write what waits, move the write-ahead log into the file, close. Later appends are refused; may be
        repeated."""
        if self._closed:
            return
        self._closed = True
        self._arrived.set()
        with anyio.CancelScope(shield=True):
            async with AsyncExitStack() as stack:
                stack.push_async_callback(self._disconnect)
                await self._task
                try:
                    if not self._failure:
                        self._check_in_place()  # SQLite removes the log by its name, which may be another one's
                        await self._writer.rollback()  # what a failed commit left
                        await self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                except sqlite3.Error as error:
                    raise explain(self._path, error) from error

    async def _disconnect(self) -> None:
        """The last one to close moves the log, if it may write: after a failure that must not be the writer."""
        first, last = (self._writer, self._reader) if self._failure else (self._reader, self._writer)
        await first.close()
        await last.close()

    # --- writing ----------------------------------------------------------------------------------------------------

    async def _write_forever(self) -> None:
        try:
            while True:
                if self._waiting:
                    await self._write()
                await self._keep_house()
                if not self._waiting and self._snapshot is None:
                    if self._closed:
                        return
                    self._arrived.clear()
                    await self._arrived.wait()
        finally:
            # Reached with callers waiting only through a bug; they must not wait for ever.
            self._closed = True
            left = (*self._writing.callers, *[caller for *_, caller in self._waiting])
            _refuse(left, JournalError(f"the journal {self._path} stopped", "restart the daemon"))

    async def _write(self) -> None:
        """One transaction; then every caller of the batch is answered, all with success or all with the error."""
        self._writing = batch = take(self._waiting, *self._head)
        try:
            if self._failure:
                raise self._failure
            if self._doubtful:
                await self._settle()
            self._check_in_place()
            failpoint("journal.before-commit")
            await self._insert(batch.statements())
            failpoint("journal.after-commit")
            self._check_in_place()  # meanwhile, too: only now it is certain that the next start finds the batch
        except (sqlite3.Error, JournalError) as error:
            self._doubtful = True
            told = explain(self._path, error) if isinstance(error, sqlite3.Error) else error
            if isinstance(error, sqlite3.Error) and is_of_disk(error):
                self._failure = told
            _refuse(batch.callers, told)
            return
        self._head = Head(*batch.head)
        for event, seq in batch.to_know:
            self._known.add(event, seq)
        for done, recorded in zip(batch.callers, batch.answers, strict=True):
            if not done.done():  # else its caller was cancelled
                done.set_result(recorded)

    def _check_in_place(self) -> None:
        """Raise JournalError, now and for every later batch, where the open file is not the one at its path any
        more."""
        try:
            self._in_use.check()
        except JournalError as error:
            self._failure = error
            raise

    async def _insert(self, statements: list[tuple[str, list[Any]]]) -> None:
        """Execute statements in one transaction."""
        if len(statements) == 1:
            await self._writer.execute(*statements[0])
            return
        await self._writer.execute("BEGIN IMMEDIATE")
        for statement in statements:
            await self._writer.execute(*statement)
        await self._writer.commit()

    async def _keep_house(self) -> None:
        """Write what can wait. A failure here concerns no caller: it is tried again after the next batch, but after an
        error of the disk that batch is refused, like every later one."""
        if self._failure:
            self._snapshot = None  # or the writer would go on for it for ever
            return
        try:
            if self._known.must_move:
                await self._known.move(self._writer)
            if self._snapshot is not None:
                code, snapshot = self._snapshot
                self._snapshot = None
                row = (snapshot.seq, now_ns(), code, snapshot.state, snapshot.digest())
                await self._writer.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?, ?)", row)
                await self._writer.execute(
                    "DELETE FROM snapshots WHERE seq NOT IN (SELECT seq FROM snapshots ORDER BY seq DESC LIMIT "
                    f"{SNAPSHOTS_KEPT})"
                )
        except sqlite3.Error as error:
            told = explain(self._path, error)
            if is_of_disk(error):
                self._failure = told
            log.warning("journal.index_not_written", error=told.line())

    async def _settle(self) -> None:
        """After a failure: give up the transaction and make sure that the journal ends where it ended before.

        A head that moved means that the failed commit took effect after all, or that another process writes; memory
        and journal then disagree, which only a new start, with a new fold, repairs.
        """
        await self._writer.rollback()
        if await read_head(self._writer, self._path) != self._head:
            raise JournalError(
                f"the journal {self._path} holds events that its writer does not know",
                "see that nothing else writes to it, and restart the daemon",
            )
        self._doubtful = False

    # --- reading ----------------------------------------------------------------------------------------------------

    async def _find(self, ids: Iterable[str]) -> dict[str, int]:
        return await self._ask(self._known.examples.find, self._reader, list(ids))

    async def _ask(self, look_up: Callable[..., Awaitable[Answer]], *given: Any) -> Answer:
        """Answer of a lookup. Asked again while the disk refuses; see `read_again`."""

        async def asked() -> Answer:
            try:
                return await look_up(*given)
            except sqlite3.Error as error:
                raise explain(self._path, error) from error

        return await read_again(asked)

    async def _fetch(self, sql: str, parameters: Sequence[Any]) -> list[Any]:
        return list(await self._ask(self._reader.execute_fetchall, sql, parameters))


def _refuse(callers: Iterable[Done | None], error: JournalError) -> None:
    for done in callers:
        if done is not None and not done.done():
            done.set_exception(error)
