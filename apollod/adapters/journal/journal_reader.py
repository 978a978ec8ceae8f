"""The journal as `apollod ctl` reads it: offline or beside the running daemon, never changing a byte.

Standard library and msgspec only, no event loop: this is on the way of short commands.
"""

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import islice
from math import inf
from pathlib import Path
from sys import getsizeof, maxsize
from typing import Any, NamedTuple

import msgspec

from apollod.adapters.journal.journal_file import FILE_ERRORS, explain, reading
from apollod.core.events import ExampleAccepted, JournalContinued, Recorded
from apollod.errors import ChainBroken, ConfigError, JournalError
from apollod.wire.event_codec import GENESIS, Row, decode_event, decode_rows, fitting

VALUE_BYTES_MAX = 64 << 20
"""of one SQL value; the body of an event is as long as its line, and [inbox] max_line_bytes has no upper limit"""
ANSWER_BYTES_MAX = 256 << 20  # of memory, for the rows of a statement that a person typed
LOOKUP_S = 60.0  # for one example: what the index does not have yet is searched for
PROGRESS_STEPS = 2000  # virtual machine instructions between two looks at the clock, well under 1 ms
# read, checked and decoded together, which is faster than one after the other; few enough for the largest bodies
ROWS = 100

SELECT = "SELECT seq, at_ns, kind, version, key, body, prev_hash, hash FROM events"
"""Rows as `wire.journal` takes them, with text as bytes."""

_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_ACTIONS = {
    getattr(sqlite3, f"SQLITE_{name}"): name.replace("_", " ")
    for name in (
        "ATTACH",
        "DETACH",
        "PRAGMA",
        "INSERT",
        "UPDATE",
        "DELETE",
        "TRANSACTION",
        "SAVEPOINT",
        "ANALYZE",
        "REINDEX",
        "CREATE_TABLE",
        "CREATE_TEMP_TABLE",
        "CREATE_INDEX",
        "CREATE_VIEW",
        "CREATE_TEMP_VIEW",
        "CREATE_TRIGGER",
        "CREATE_TEMP_TRIGGER",
        "CREATE_VTABLE",
        "DROP_TABLE",
        "DROP_INDEX",
        "DROP_VIEW",
        "DROP_TRIGGER",
        "ALTER_TABLE",
    )
}


class Answer(NamedTuple):
    """Result of a query; BLOBs are hex text. `truncated`: there were more rows than asked for."""

    columns: list[str]
    rows: list[tuple[Any, ...]]
    truncated: bool


def literal(text: str) -> str:
    """A text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def query(path: str | Path, sql: str, row_limit: int = 1000, seconds: float = 5.0, bytes_limit: float = inf) -> Answer:
    """Run one reading statement. Raises JournalError for anything else, after `seconds`, for rows of more than
    `bytes_limit` bytes of memory, and for SQL that is wrong; ConfigError for limits that are none.

    SQLite looks at the clock between two instructions of its machine only: one function on long texts goes on after
    `seconds`.
    """
    _check_limits(row_limit, seconds)
    deadline = time.monotonic() + seconds
    with _asking(path, lambda: time.monotonic() > deadline, seconds) as db:
        cursor = db.execute(sql)
        rows = _taken(islice(cursor, min(row_limit, maxsize)), deadline, seconds, bytes_limit)
        truncated = len(rows) == row_limit and cursor.fetchone() is not None
    if cursor.description is None:
        raise JournalError("the query is empty", "give a single SELECT")
    columns = [column[0] for column in cursor.description]
    return Answer(columns, rows, truncated)


def stream(path: str | Path, sql: str, seconds: float = 60.0) -> Iterator[tuple[Any, ...]]:
    """The rows of one reading statement, as they are found: no more than one of them is in memory. `seconds`: until
    the next one. Raises JournalError as `query` does."""
    _check_limits(0, seconds)
    until = [time.monotonic() + seconds]
    with _asking(path, lambda: time.monotonic() > until[0], seconds) as db:
        for row in db.execute(sql):
            yield row
            until[0] = time.monotonic() + seconds


def _check_limits(row_limit: int, seconds: float) -> None:
    if row_limit < 0 or not 0 < seconds < inf:
        raise ConfigError(
            f"a limit of {row_limit} rows and {seconds:g} s is none", "give a number of rows and of seconds"
        )


@contextmanager
def _asking(path: str | Path, late: Callable[[], bool], seconds: float) -> Iterator[sqlite3.Connection]:
    """A read-only connection for one statement from outside, until it is `late`; errors are explained."""
    denied: list[str] = []

    def authorize(action: int, first: str | None, *_: str | None) -> int:
        if action in _ALLOWED:
            return sqlite3.SQLITE_OK
        denied.append(f"{_ACTIONS.get(action, f'action {action}')} {first or ''}".strip())
        return sqlite3.SQLITE_DENY

    with reading(path) as db:
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX)
        db.execute("SELECT 1 FROM json_each('[]'), json_tree('[]')")  # set up once; that needs more than reading
        db.set_authorizer(authorize)
        db.set_progress_handler(late, PROGRESS_STEPS)
        try:
            yield db
        except UnicodeEncodeError as error:
            raise JournalError("the query is not text that UTF-8 can hold", "give a single SELECT") from error
        except MemoryError as error:
            raise JournalError(
                "the query needs more memory than there is", "select fewer or shorter columns"
            ) from error
        except (sqlite3.Warning, sqlite3.ProgrammingError) as error:  # the class depends on Python's version
            raise JournalError(f"the query is not one statement: {error}", "give a single SELECT") from error
        except sqlite3.Error as error:
            if denied:
                raise JournalError(f"the query is refused: it may only read ({denied[0]})", "use SELECT") from error
            name = getattr(error, "sqlite_errorname", "")
            if name == "SQLITE_INTERRUPT":
                raise too_slow(seconds) from error
            if name.startswith(FILE_ERRORS):
                raise explain(path, error) from error
            if "malformed JSON" in str(error):
                raise JournalError(
                    "the query met malformed JSON, its own or that of an event that was damaged",
                    "`apollod ctl journal verify` tells whether one was",
                ) from error
            raise JournalError(f"the query is wrong: {error}", "docs/journal.md lists tables and views") from error


def too_slow(seconds: float) -> JournalError:
    """The error for a query that exceeded its time."""
    return JournalError(f"the query took longer than {seconds:g} s", "narrow it or allow more time")


def _taken(
    rows: Iterable[tuple[Any, ...]], deadline: float, seconds: float, bytes_limit: float
) -> list[tuple[Any, ...]]:
    """All of them, as they are shown. Raises JournalError after `deadline` and where they become too many bytes."""
    taken: list[tuple[Any, ...]] = []
    size = 0
    for row in rows:
        if time.monotonic() > deadline:
            raise too_slow(seconds)
        shown = tuple(value.hex() if isinstance(value, bytes) else value for value in row)
        size += getsizeof(shown) + sum(map(getsizeof, shown))
        if size > bytes_limit:
            raise JournalError(
                f"the answer is too large: {len(taken) + 1} rows take more than {bytes_limit / (1 << 20):.0f} MiB",
                "select fewer or shorter columns, or give a smaller --limit",
            )
        taken.append(shown)
    return taken


def events(path: str | Path, after: int = 0, kind: str | None = None, limit: int = 100) -> list[dict[str, Any]]:
    """Events after a sequence number as plain objects, oldest first; `kind` may end in `*`. Unknown kinds are shown
    too."""
    sql = (
        "SELECT seq, at_ns, kind, version, key, body, hash FROM events WHERE seq > ? AND kind GLOB ? ORDER BY seq "
        "LIMIT ?"
    )
    with reading(path) as db:
        try:
            rows = db.execute(sql, (after, kind or "*", limit)).fetchall()
        except sqlite3.Error as error:
            raise explain(path, error) from error
    return [
        {
            "seq": seq,
            "at_ns": at_ns,
            "kind": kind_,
            "version": version,
            "key": key,
            "body": decode_body(path, seq, body),
            "hash": hash_.hex(),
        }
        for seq, at_ns, kind_, version, key, body, hash_ in rows
    ]


def decode_body(path: str | Path, seq: int, body: str) -> Any:
    """The body of event `seq` as plain JSON. Raises JournalError where it is none any more."""
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise JournalError(
            f"event {seq} of the journal {path} is damaged: its body is no JSON ({error})",
            "`apollod ctl journal verify` names the first event that is; restore a backup",
        ) from error


def accepted(path: str | Path, example: str) -> ExampleAccepted | None:
    """The acceptance of an example, which has its record and its tier; None for one that is not known."""
    quoted = literal(example)
    sql = f"SELECT kind, version, body FROM known_examples JOIN events USING (seq) WHERE id = {quoted}"
    events = (decode_event(*row) for row in query(path, sql, seconds=LOOKUP_S).rows)
    return next((event for event in events if isinstance(event, ExampleAccepted)), None)


def continued(path: str | Path) -> JournalContinued | None:
    """The event that names the archive before this journal; None for the first journal."""
    rows = query(path, "SELECT kind, version, body FROM events WHERE seq = 1 AND kind = 'journal.continued'").rows
    event = decode_event(*rows[0]) if rows else None
    return event if isinstance(event, JournalContinued) else None


class Chain(NamedTuple):
    """The result of a walk along the chain: number and hash of the last good event (0 and zeros: none), and the first
    bad one, if any."""

    seq: int
    hash: bytes
    broken: int | None


def proved(path: str | Path) -> Chain:
    """Walk along the whole chain, up to where it breaks (edited, missing or out of place).

    Raises JournalError, naming the last good event, when the file cannot be read that far.
    """
    last = 0, GENESIS
    try:
        for rows in chained(path, *last):
            last = rows[-1][0], rows[-1][-1]
    except ChainBroken as error:
        return Chain(*last, error.seq)
    return Chain(*last, None)


def verify(path: str | Path) -> int | None:
    """The first sequence number at which the chain breaks, or None. Raises what `proved` raises."""
    return proved(path).broken


def verified(path: str | Path, after: int, after_hash: bytes, limit: int) -> tuple[int, bytes]:
    """Check at most `limit` events after event `after`, whose hash is `after_hash`; the last one and its hash.

    Raises ChainBroken, or JournalError where the file cannot be read.
    """
    last = after, after_hash
    for rows in chained(path, *last, limit):
        last = rows[-1][0], rows[-1][-1]
    return last


def recorded(path: str | Path, after: int = 0, after_hash: bytes = GENESIS) -> Iterator[tuple[Recorded, bytes]]:
    """Every event after event `after`, whose hash is `after_hash`, with its own hash; the chain is checked on the way.

    Raises JournalError, naming the event, where the chain breaks or an event is not known to this code.
    """
    for rows in chained(path, after, after_hash):
        try:
            events = decode_rows(rows)
        except (KeyError, msgspec.MsgspecError):
            yield from map(_decoded, rows)
        else:
            yield from events


def _decoded(row: Row) -> tuple[Recorded, bytes]:
    """One event, of whatever version."""
    seq, at_ns, kind, version, _, body, _, hash_ = row
    try:
        return Recorded(seq, at_ns, decode_event(kind.decode(), version, body)), hash_
    except JournalError as error:
        raise JournalError(f"event {seq}: {error}", error.hint) from error


class Snapshot(NamedTuple):
    """A folded state, as bytes that `code` wrote and reads; `hash`: of event `seq`, the last that is in it."""

    seq: int
    hash: bytes
    state: bytes

    def digest(self) -> bytes:
        """Digest stored beside the state; binds it to its place in the hash chain."""
        return sha256(self.hash + self.state).digest()


def snapshot(path: str | Path, code: str) -> Snapshot | None:
    """The newest snapshot that `code` wrote and that is whole; None when everything has to be folded."""
    sql = (
        "SELECT s.seq, e.hash, s.state, s.state_hash FROM snapshots AS s JOIN events AS e USING (seq) WHERE code = "
        "? ORDER BY s.seq DESC"
    )
    with reading(path) as db:
        try:
            for seq, hash_, state, digest in db.execute(sql, (code,)):
                found = Snapshot(seq, hash_, state)
                if found.digest() == digest:
                    return found
        except sqlite3.Error as error:
            raise explain(path, error) from error
    return None


def chained(path: str | Path, seq: int, prev: bytes, limit: int = -1) -> Iterator[list[Row]]:
    """The events after `seq` (at most `limit`), in order and checked, some at a time. Raises ChainBroken after the
    last good one."""
    cursor = failure = None
    with reading(path) as db:
        db.text_factory = bytes
        while failure is None:
            rows: list[Row] = []
            try:
                cursor = cursor or db.execute(f"{SELECT} WHERE seq > ? ORDER BY seq LIMIT ?", (seq, limit))
                rows.extend(islice(cursor, ROWS))  # what came before an error stays in the list
            except sqlite3.Error as error:
                failure = error
            good = fitting(rows, seq, prev)
            if good:
                yield rows[:good]
                seq, prev = rows[good - 1][0], rows[good - 1][-1]
            if good < len(rows):
                raise ChainBroken(str(path), seq + 1)
            if good < ROWS and failure is None:
                return
        raise explain(path, failure, f" after event {seq}, up to which it is good") from failure
