"""Opens the journal file for writing: creates it, refuses a foreign or damaged one before its first byte changes,
brings its schema up to date; connects with pragmas; reads the head, which is the newest event; reads again while the
disk refuses."""

import os
import sqlite3
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import aiosqlite
import anyio
import structlog

from apollod.adapters.journal.journal_file import (
    LOG_HEADER_BYTES,
    check_application,
    check_not_lost,
    explain,
    log_of,
    uri,
)
from apollod.adapters.journal.journal_reader import chained, query, recorded
from apollod.adapters.journal.schema import load, migrate
from apollod.adapters.system import service
from apollod.adapters.system.clock import now_ns
from apollod.adapters.system.files import fsync_dir
from apollod.errors import ChainBroken, JournalError
from apollod.explain import reason
from apollod.wire.event_codec import GENESIS, chain

log = structlog.get_logger()

Found = TypeVar("Found")

READ_AGAIN_S, READINGS = 1.0, 60
"""seconds between two readings that the disk refuses, and their number"""
BUSY_MS = 5000  # patience with a foreign lock
LOG_EVENTS = 1000
"""newest events that are checked before a write-ahead log is copied into its file; a start checks more of them"""

WRITE_PRAGMAS: tuple[tuple[str, str, Any], ...] = (  # name, value, what it reads back as
    ("journal_mode", "WAL", "wal"),
    ("synchronous", "FULL", 2),
    ("busy_timeout", str(BUSY_MS), BUSY_MS),
    # Pages, 16 MiB: from then on the log is overwritten, and an fsync need not record a new size; 1000 cost a twentieth
    # of an append.
    ("wal_autocheckpoint", "4000", 4000),
    ("journal_size_limit", str(256 << 20), 256 << 20),
    ("trusted_schema", "OFF", 0),
    ("cell_size_check", "ON", 1),
    ("mmap_size", "0", 0),
)
READ_PRAGMAS = (("busy_timeout", str(BUSY_MS), BUSY_MS), ("query_only", "ON", 1), ("trusted_schema", "OFF", 0))

SELECT = "SELECT seq, at_ns, kind, version, key, CAST(body AS BLOB), prev_hash, hash FROM events"


class Head(NamedTuple):
    """The newest event's number and hash."""

    seq: int
    hash: bytes


def prepare(path: Path) -> None:
    """Make the file if there is none, refuse one that is not ours, bring its schema up to date. Blocking."""
    check_not_lost(path)
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)  # the log files take over this mode
        try:
            begin = os.pread(fd, 16, 0)
        finally:
            os.close(fd)
        fsync_dir(path.parent)
    except OSError as error:
        raise JournalError(
            f"the journal {path} cannot be opened for writing: {reason(error)}",
            "check [state] dir, its owner, mode and disk",
        ) from error
    if begin and begin != b"SQLite format 3\0":
        raise JournalError(
            f"{path} is not a SQLite database", "it was left as it is; give another [state] dir or move it away"
        )
    schema = load()
    # with that file the first start of all was cut off, and SQLite undoes it
    if begin and not path.with_name(f"{path.name}-journal").exists():
        check_before_writing(path, schema.number)
    try:
        with closing(sqlite3.connect(path, timeout=BUSY_MS / 1000, isolation_level=None)) as db:
            check_application(db, path)
            migrate(db, path, schema, now_ns())
    except sqlite3.Error as error:
        raise explain(path, error) from error


def check_before_writing(path: Path, schema: int) -> None:
    """Refuse to write a journal that cannot be trusted: its write-ahead log has to be its own, since a writer copies
    that into the file, whatever it is; its newest events have to fit together, and where its schema is older than
    number `schema`, and so about to change, all of them, which have to be of known kinds.

    Reads only. Raises JournalError; ChainBroken where events do not fit together.
    """
    log, newest = log_of(path), 1
    if log.exists() and log.stat().st_size > LOG_HEADER_BYTES:
        newest = LOG_EVENTS
        own, seen = _identity(path, "&immutable=1"), _identity(path, "")
        if own is not None and seen != own:
            raise JournalError(
                f"{log} is not the write-ahead log of the journal {path}",
                "nothing was changed; put back the right one, or move this one away: the journal then ends where "
                "the file ends",
            )
    found = _schema(path)
    if 0 < found < schema:
        deque(recorded(path), maxlen=0)
    elif found == schema:
        tail = query(path, f"SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1 OFFSET {newest}").rows
        after, hash_ = (tail[0][0], bytes.fromhex(tail[0][1])) if tail else (0, GENESIS)
        deque(chained(path, after, hash_), maxlen=0)


def _schema(path: Path) -> int:
    """Number of the newest migration in a journal, 0 for a database that is still empty."""
    try:
        with closing(sqlite3.connect(uri(path), uri=True, timeout=5.0, isolation_level=None)) as db:
            return int(db.execute("PRAGMA user_version").fetchone()[0]) if check_application(db, path) else 0
    except sqlite3.Error as error:
        raise explain(path, error) from error


def _identity(path: Path, options: str) -> str | None:
    """The journal's id; None for a database that is not a journal yet. With `immutable` the log is not looked at."""
    try:
        with closing(sqlite3.connect(_uri(path, f"ro{options}"), uri=True, isolation_level=None)) as db:
            found = db.execute("SELECT value FROM meta WHERE key = 'journal_id'").fetchone()
            return str(found[0]) if found else None
    except sqlite3.OperationalError:  # no such table
        return None
    except sqlite3.Error as error:
        raise explain(
            path, error, "" if options else f" together with its write-ahead log {log_of(path).name}"
        ) from error


async def connect(
    stack: AsyncExitStack, path: Path, mode: str, pragmas: Sequence[tuple[str, str, Any]]
) -> aiosqlite.Connection:
    """A connection, closed by `stack`, with these pragmas in force."""
    connection = await stack.enter_async_context(aiosqlite.connect(_uri(path, mode), uri=True, isolation_level=None))
    for name, value, expected in pragmas:
        await connection.execute(f"PRAGMA {name} = {value}")
        ((found,),) = await connection.execute_fetchall(f"PRAGMA {name}")
        if found != expected:
            raise JournalError(
                f"SQLite does not accept {name} = {value} for {path} (it says {found})",
                "put [state] dir on a local disk",
            )
    return connection


def _uri(path: Path, mode: str) -> str:
    return f"{path.absolute().as_uri()}?mode={mode}"


async def read_head(connection: aiosqlite.Connection, path: Path) -> Head:
    """The newest event, whose own hash is checked. Raises JournalError, sqlite3.Error."""
    rows = list(await connection.execute_fetchall(f"{SELECT} ORDER BY seq DESC LIMIT 1"))
    if not rows:
        return Head(0, GENESIS)
    return checked(rows[0], path)


def checked(row: Iterable[Any], path: Path) -> Head:
    """Number and hash of a row, if the hash is its own. Raises ChainBroken."""
    seq, at_ns, kind, version, key, body, prev_hash, hash_ = row
    if chain(prev_hash, seq, at_ns, kind, version, key, body) != hash_:
        raise ChainBroken(str(path), seq)
    return Head(seq, hash_)


async def read_again(read: Callable[[], Awaitable[Found]]) -> Found:
    """Result of `read`, which reads the journal. Called again for a minute while the disk refuses: steps can wait, and
    an end of the daemon would end serving. Raises JournalError."""
    for left in reversed(range(READINGS)):
        try:
            return await read()
        except JournalError as error:
            if not (left and error.of_disk):
                raise
            if left == READINGS - 1:
                log.warning("journal.unreadable", error=error.line(), retry_s=READ_AGAIN_S)
            service.notify("WATCHDOG=1")  # the loop is alive
            await anyio.sleep(READ_AGAIN_S)
    raise AssertionError("the last reading returns or raises")
