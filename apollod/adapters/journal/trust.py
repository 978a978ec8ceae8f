"""May a journal be written? Asked before the first byte of it changes."""

import sqlite3
from collections import deque
from contextlib import closing
from pathlib import Path

from apollod.adapters.journal.failures import explain
from apollod.adapters.journal.journal_file import LOG_HEADER_BYTES, check_application, log_of, uri
from apollod.adapters.journal.journal_reader import chained, query, recorded
from apollod.errors import JournalError
from apollod.wire.event_codec import GENESIS

LOG_EVENTS = (
    1000  # newest events that are checked before a write-ahead log is copied into its file; a start checks more of them
)


def check_before_writing(path: Path, schema: int) -> None:
    """A journal that is to be written is to be trusted: what lies in its write-ahead log is its own, since a writer
    copies that into the file, whatever it is; its newest events fit together, and where its schema is older than
    `schema`, and so about to be changed, all of them do, and are known.

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
    """Which journal a file is, None for one that is (still) none. With `immutable` the log is not looked at."""
    try:
        with closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro{options}", uri=True, isolation_level=None)
        ) as db:
            found = db.execute("SELECT value FROM meta WHERE key = 'journal_id'").fetchone()
            return str(found[0]) if found else None
    except sqlite3.OperationalError:  # no such table
        return None
    except sqlite3.Error as error:
        raise explain(
            path, error, "" if options else f" together with its write-ahead log {log_of(path).name}"
        ) from error
