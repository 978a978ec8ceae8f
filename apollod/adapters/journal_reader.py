"""The journal as `apollod ctl` reads it: offline or beside the running daemon, never changing a byte.

Standard library only, no event loop: this is on the way of short commands. Also says in people's words what SQLite's
errors mean, for the writer too.
"""

import os
import sqlite3
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager
from hashlib import sha256
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from apollod.core.events import ExampleAccepted, Recorded
from apollod.errors import ChainBroken, ConfigError, JournalError, NotPermitted
from apollod.permission import check_permitted
from apollod.wire.journal import GENESIS, Row, decode_event, decode_rows, fitting

APPLICATION_ID = 0x41504F4C  # "APOL"
VALUE_BYTES_MAX = 64 << 20  # one SQL value: a query cannot eat the memory; an event's body is far below
LOG_HEADER_BYTES = 32  # of a write-ahead log
LOG_EVENTS = 1000  # newest events that are checked before a write-ahead log is copied into its file; a start checks more of them
LOOKUP_S = 60.0  # for one example: what the index does not have yet is searched for
PROGRESS_STEPS = 2000  # virtual machine instructions between two looks at the clock, well under 1 ms
ROWS = 100  # read, checked and decoded together, which is faster than one after the other; few enough for the largest bodies

SELECT = "SELECT seq, at_ns, kind, version, key, body, prev_hash, hash FROM events"
"""Rows as `wire.journal` takes them, with text as bytes."""

_DAMAGED = (
    "nothing was changed; restore a backup (`apollod ctl journal verify --file FILE` tells how far a file can be read and is good, "
    "`sqlite3 FILE .recover` saves what is left of one that cannot)"
)
_DISK_ERRORS = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_IOERR")
_FILE_ERRORS = (*_DISK_ERRORS, "SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_CANTOPEN")
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_ACTIONS = {
    getattr(sqlite3, f"SQLITE_{name}"): name.replace("_", " ")
    for name in (
        "ATTACH", "DETACH", "PRAGMA", "INSERT", "UPDATE", "DELETE", "TRANSACTION", "SAVEPOINT", "ANALYZE", "REINDEX",
        "CREATE_TABLE", "CREATE_TEMP_TABLE", "CREATE_INDEX", "CREATE_VIEW", "CREATE_TEMP_VIEW", "CREATE_TRIGGER",
        "CREATE_TEMP_TRIGGER", "CREATE_VTABLE", "DROP_TABLE", "DROP_INDEX", "DROP_VIEW", "DROP_TRIGGER", "ALTER_TABLE",
    )
}


class JournalNotPermitted(JournalError, NotPermitted):
    """A journal that the caller may not read."""


class Answer(NamedTuple):
    """Result of a query; BLOBs are hex text. `truncated`: there were more rows than asked for."""

    columns: list[str]
    rows: list[tuple[Any, ...]]
    truncated: bool


def query(path: str | Path, sql: str, row_limit: int = 1000, seconds: float = 5.0) -> Answer:
    """Run one reading statement. Raises JournalError for anything else, after `seconds`, and for SQL that is wrong; ConfigError for
    limits that are none."""
    if row_limit < 0 or not 0 < seconds < inf:
        raise ConfigError(f"a limit of {row_limit} rows and {seconds:g} s is none", "give a number of rows and of seconds")
    denied: list[str] = []

    def authorize(action: int, first: str | None, *_: str | None) -> int:
        if action in _ALLOWED:
            return sqlite3.SQLITE_OK
        denied.append(f"{_ACTIONS.get(action, f'action {action}')} {first or ''}".strip())
        return sqlite3.SQLITE_DENY

    with _reading(path) as db:
        deadline = time.monotonic() + seconds
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX)
        db.execute("SELECT 1 FROM json_each('[]'), json_tree('[]')")  # set up once; that needs more than reading
        db.set_authorizer(authorize)
        db.set_progress_handler(lambda: time.monotonic() > deadline, PROGRESS_STEPS)
        try:
            cursor = db.execute(sql)
            rows = cursor.fetchmany(row_limit + 1)
        except UnicodeEncodeError as error:
            raise JournalError("the query is not text that UTF-8 can hold", "give a single SELECT") from error
        except (sqlite3.Warning, sqlite3.ProgrammingError) as error:  # the class depends on Python's version
            raise JournalError(f"the query is not one statement: {error}", "give a single SELECT") from error
        except sqlite3.Error as error:
            if denied:
                raise JournalError(f"the query is refused: it may only read ({denied[0]})", "use SELECT") from error
            name = getattr(error, "sqlite_errorname", "")
            if name == "SQLITE_INTERRUPT":
                raise JournalError(f"the query took longer than {seconds:g} s", "narrow it or allow more time") from error
            if name.startswith(_FILE_ERRORS):
                raise explain(path, error) from error
            if "malformed JSON" in str(error):
                raise JournalError(
                    "the query met malformed JSON, its own or that of an event that was damaged",
                    "`apollod ctl journal verify` tells whether one was",
                ) from error
            raise JournalError(f"the query is wrong: {error}", "docs/journal.md lists tables and views") from error
        if cursor.description is None:
            raise JournalError("the query is empty", "give a single SELECT")
    columns = [column[0] for column in cursor.description]
    return Answer(columns, [_printable(row) for row in rows[:row_limit]], len(rows) > row_limit)


def events(path: str | Path, after: int = 0, kind: str | None = None, limit: int = 100) -> list[dict[str, Any]]:
    """Events after a sequence number as plain objects, oldest first; `kind` may end in `*`. Unknown kinds are shown too."""
    sql = "SELECT seq, at_ns, kind, version, key, body, hash FROM events WHERE seq > ? AND kind GLOB ? ORDER BY seq LIMIT ?"
    with _reading(path) as db:
        try:
            rows = db.execute(sql, (after, kind or "*", limit)).fetchall()
        except sqlite3.Error as error:
            raise explain(path, error) from error
    return [
        {
            "seq": seq, "at_ns": at_ns, "kind": kind_, "version": version, "key": key,
            "body": decode_body(path, seq, body), "hash": hash_.hex(),
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
    quoted = example.replace("'", "''")
    sql = f"SELECT kind, version, body FROM known_examples JOIN events USING (seq) WHERE id = '{quoted}'"
    events = (decode_event(*row) for row in query(path, sql, seconds=LOOKUP_S).rows)
    return next((event for event in events if isinstance(event, ExampleAccepted)), None)


def verify(path: str | Path) -> int | None:
    """The first sequence number at which the chain breaks (edited, missing or out of place), or None.

    Raises JournalError, naming the last good event, when the file cannot be read that far.
    """
    try:
        deque(_chained(path, 0, GENESIS), maxlen=0)
    except ChainBroken as broken:
        return broken.seq
    return None


def verified(path: str | Path, after: int, after_hash: bytes, limit: int) -> tuple[int, bytes]:
    """Check at most `limit` events after event `after`, whose hash is `after_hash`; the last one and its hash.

    Raises ChainBroken, or JournalError where the file cannot be read.
    """
    last = after, after_hash
    for rows in _chained(path, *last, limit):
        last = rows[-1][0], rows[-1][-1]
    return last


def recorded(path: str | Path, after: int = 0, after_hash: bytes = GENESIS) -> Iterator[tuple[Recorded, bytes]]:
    """Every event after event `after`, whose hash is `after_hash`, with its own hash; the chain is checked on the way.

    Raises JournalError, naming the event, where the chain breaks or an event is not known to this code.
    """
    for rows in _chained(path, after, after_hash):
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
        """What the journal keeps beside it: binds the state to its place in this very chain."""
        return sha256(self.hash + self.state).digest()


def snapshot(path: str | Path, code: str) -> Snapshot | None:
    """The newest snapshot that `code` wrote and that is whole; None when everything has to be folded."""
    sql = "SELECT s.seq, e.hash, s.state, s.state_hash FROM snapshots AS s JOIN events AS e USING (seq) WHERE code = ? ORDER BY s.seq DESC"
    with _reading(path) as db:
        try:
            for seq, hash_, state, digest in db.execute(sql, (code,)):
                found = Snapshot(seq, hash_, state)
                if found.digest() == digest:
                    return found
        except sqlite3.Error as error:
            raise explain(path, error) from error
    return None


def _chained(path: str | Path, seq: int, prev: bytes, limit: int = -1) -> Iterator[list[Row]]:
    """The events after `seq` (at most `limit`), in order and checked, some at a time. Raises ChainBroken after the last good one."""
    cursor = failure = None
    with _reading(path) as db:
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


def absence(path: Path) -> str:
    """How there is no journal at all: "missing" or "empty"; empty text where there is something."""
    if not path.exists():
        return "missing"
    return "" if path.stat().st_size else "empty"


def check_not_lost(path: Path) -> None:
    """A journal that is missing or empty beside a write-ahead log with rows is not new, it was lost. SQLite would drop the log.

    Raises JournalError. Reads only.
    """
    log = path.with_name(f"{path.name}-wal")
    if (how := absence(path)) and log.exists() and (held := log.stat().st_size) > LOG_HEADER_BYTES:
        raise JournalError(
            f"the journal {path} is {how}, but its write-ahead log {log.name} holds {held} bytes",
            "nothing was changed; put back the journal that the log belongs to, or restore a backup and move the log away",
        )


def check_before_writing(path: Path, schema: int) -> None:
    """A journal that is to be written is to be trusted: what lies in its write-ahead log is its own, since a writer copies that into
    the file, whatever it is; its newest events fit together, and where its schema is older than `schema`, and so about to be
    changed, all of them do, and are known.

    Reads only. Raises JournalError; ChainBroken where events do not fit together.
    """
    log, newest = path.with_name(f"{path.name}-wal"), 1
    if log.exists() and log.stat().st_size > LOG_HEADER_BYTES:
        newest = LOG_EVENTS
        own, seen = _identity(path, "&immutable=1"), _identity(path, "")
        if own is not None and seen != own:
            raise JournalError(
                f"{log} is not the write-ahead log of the journal {path}",
                "nothing was changed; put back the right one, or move this one away: the journal then ends where the file ends",
            )
    found = _schema(path)
    if 0 < found < schema:
        deque(recorded(path), maxlen=0)
    elif found == schema:
        tail = query(path, f"SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1 OFFSET {newest}").rows
        after, hash_ = (tail[0][0], bytes.fromhex(tail[0][1])) if tail else (0, GENESIS)
        deque(_chained(path, after, hash_), maxlen=0)


def _schema(path: Path) -> int:
    """Number of the newest migration in a journal, 0 for a database that is still empty."""
    try:
        with closing(sqlite3.connect(_uri(path), uri=True, timeout=5.0, isolation_level=None)) as db:
            return int(db.execute("PRAGMA user_version").fetchone()[0]) if check_application(db, path) else 0
    except sqlite3.Error as error:
        raise explain(path, error) from error


def _identity(path: Path, options: str) -> str | None:
    """Which journal a file is, None for one that is (still) none. With `immutable` the log is not looked at."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro{options}", uri=True, isolation_level=None)) as db:
            found = db.execute("SELECT value FROM meta WHERE key = 'journal_id'").fetchone()
            return str(found[0]) if found else None
    except sqlite3.OperationalError:  # no such table
        return None
    except sqlite3.Error as error:
        raise explain(path, error, "" if options else f" together with its write-ahead log {path.name}-wal") from error


def is_of_disk(error: sqlite3.Error) -> bool:
    """Did a read, write or fsync fail, or is what was read no database?"""
    return (getattr(error, "sqlite_errorname", "") or "").startswith(_DISK_ERRORS)


def explain(path: str | Path, error: sqlite3.Error, where: str = "") -> JournalError:
    """SQLite's error as what happened to the journal and what to do; `retryable` where waiting may help."""
    name = getattr(error, "sqlite_errorname", "") or ""
    what, hint = f"the journal {path} failed{where}: {error}", "look at the disk and the kernel's log"
    if name.startswith("SQLITE_FULL"):
        what = f"the disk is full: the journal {path} cannot grow, {free_bytes(path) >> 10} KiB are free"
        hint = "free some space; what was recorded is safe"
    elif name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        what, hint = f"another process holds the journal {path} locked", "close the SQLite shell or backup that writes to it"
    elif name.startswith("SQLITE_READONLY"):
        what, hint = f"the journal {path} cannot be written ({error})", "check owner and mode of the file and its directory"
    elif name.startswith("SQLITE_CANTOPEN"):
        what, hint = f"the journal {path} cannot be opened", "check the path, and the owner and mode of file and directory"
    elif name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        what, hint = f"the journal {path} is damaged{where} ({_cut_off(path) or error})", _DAMAGED
    elif name.startswith("SQLITE_CONSTRAINT"):
        what, hint = f"the journal {path} refused the events: {error}", "see that nothing else writes to it; else this is a bug"
    failure = JournalError(what, hint)
    failure.retryable = name.startswith(("SQLITE_FULL", "SQLITE_BUSY", "SQLITE_LOCKED"))
    return failure


def _cut_off(path: str | Path) -> str:
    """Is the file shorter than its header says? (https://sqlite.org/fileformat.html, 1.3)"""
    try:
        with open(path, "rb") as file:
            header = file.read(100)
            size = os.fstat(file.fileno()).st_size
    except OSError:
        return ""
    page = int.from_bytes(header[16:18], "big")
    whole = (65536 if page == 1 else page) * int.from_bytes(header[28:32], "big")
    return f"it is cut off: {size} of {whole} bytes are there" if size < whole else ""


def free_bytes(path: str | Path) -> int:
    """Bytes that the caller may still write on the disk of a file; 0 where that cannot be told."""
    try:
        disk = os.statvfs(Path(path).parent)
    except OSError:
        return 0
    return disk.f_bavail * disk.f_frsize


def check_application(db: sqlite3.Connection, path: str | Path) -> bool:
    """Is this a journal (true) or an empty database (false)? Raises JournalError for anything else."""
    if db.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID:
        return True
    if db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise JournalError(f"{path} is a database of another program", "give the path of an apollod journal")
    return False


@contextmanager
def _reading(path: str | Path) -> Iterator[sqlite3.Connection]:
    """A connection that cannot write: mode=ro and query_only. (trusted_schema stays on: SQLite 3.40 takes the JSON
    functions in our views for unsafe ones.)"""
    _check_permitted(Path(path))
    check_not_lost(Path(path))
    try:
        with closing(sqlite3.connect(_uri(Path(path)), uri=True, timeout=5.0, isolation_level=None)) as db:
            db.execute("PRAGMA query_only = ON")
            db.text_factory = _text
            if not check_application(db, path):
                raise JournalError(f"{path} is empty", "start the daemon once, or give the path of another journal")
            yield db
    except sqlite3.Error as error:
        raise explain(path, error) from error


def _check_permitted(path: Path) -> None:
    """Raise JournalNotPermitted where journal or log may not be read: SQLite does not say why it cannot open them."""
    try:
        for file in (path, path.with_name(f"{path.name}-wal")):
            check_permitted(file, os.R_OK)
    except NotPermitted as refusal:
        raise JournalNotPermitted(str(refusal), refusal.hint) from refusal


def _uri(path: Path) -> str:
    """A write-ahead log needs files beside the journal. Where they cannot be made, and none holds rows that are not in
    the journal yet, nobody writes and the file is read as it is."""
    fixed = not os.access(path.parent, os.W_OK, effective_ids=True) and not path.with_name(f"{path.name}-wal").exists()
    return f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if fixed else ''}"


def _text(raw: bytes) -> str:
    """What a damaged disk made no text is shown as far as it is; the chain tells."""
    return raw.decode("utf-8", "replace")


def _printable(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value.hex() if isinstance(value, bytes) else value for value in row)
