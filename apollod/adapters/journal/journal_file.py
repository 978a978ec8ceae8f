"""A journal's file: is one there, is it ours, a connection that cannot change it, and SQLite's errors as what happened
to it and what to do."""

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from apollod.core.schedules import DAY_NS, SECOND_NS
from apollod.errors import JournalError, NotPermitted
from apollod.permission import check_permitted

APPLICATION_ID = 0x41504F4C  # "APOL"
LOG_HEADER_BYTES = 32  # of a write-ahead log
_DAMAGED = (
    "nothing was changed; restore a backup (`apollod ctl journal verify --file FILE` tells how far a file can be "
    "read and is good, `sqlite3 FILE .recover` saves what is left of one that cannot)"
)
_DISK_ERRORS = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_IOERR")
FILE_ERRORS = (*_DISK_ERRORS, "SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_CANTOPEN")
"""Names of the errors that are of the file, not of what was asked of it."""


class JournalNotPermitted(JournalError, NotPermitted):
    """A journal that the caller may not read."""


def resolved(path: str | Path) -> Path:
    """The file itself where the path leads over symbolic links: SQLite keeps the log beside that, not beside the
    link."""
    return Path(os.path.realpath(path))


def log_of(path: str | Path) -> Path:
    """The write-ahead log of a journal; it need not be there."""
    file = resolved(path)
    return file.with_name(f"{file.name}-wal")


def _check_regular(path: Path) -> None:
    """Raise JournalError for a pipe, a device or a directory: opening one may wait for ever. What is missing is said
    elsewhere."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return
    if not stat.S_ISREG(mode):
        raise JournalError(
            f"{path} is no file (its mode is {stat.filemode(mode)})", "give the path of an apollod journal"
        )


def absence(path: Path) -> str:
    """Reason why there is no journal: "missing" or "empty"; empty text if there is one."""
    if not path.exists():
        return "missing"
    return "" if path.stat().st_size else "empty"


def check_not_lost(path: Path) -> None:
    """A journal that is missing or empty beside a write-ahead log with rows is not new, it was lost. SQLite would drop
    the log.

    Raises JournalError. Reads only.
    """
    path, log = resolved(path), log_of(path)
    if (how := absence(path)) and log.exists() and (held := log.stat().st_size) > LOG_HEADER_BYTES:
        raise JournalError(
            f"the journal {path} is {how}, but its write-ahead log {log.name} holds {held} bytes",
            "nothing was changed; put back the journal that the log belongs to, or restore a backup and move the "
            "log away",
        )


class InUse:
    """The files of an open journal. SQLite never looks at their names again: after they are moved or removed, it writes
    to files that the next start does not open."""

    def __init__(self, path: str | Path) -> None:
        """Call while the write-ahead log exists, which it does until the last connection closes. Raises JournalError as
        `check` does."""
        self._path = os.path.abspath(path)  # with its links: one that leads elsewhere leads to another journal
        self._log = log_of(path)
        self._found = self._look()

    def check(self) -> None:
        """Raise JournalError where the names are not those of the open files any more. Two calls of the system,
        about 3 µs."""
        if self._look() != self._found:
            raise self._lost()

    def _look(self) -> tuple[int, int, int, int]:
        try:
            file, log = os.stat(self._path), os.stat(self._log)
        except OSError as error:
            raise self._lost() from error
        return file.st_dev, file.st_ino, log.st_dev, log.st_ino

    def _lost(self) -> JournalError:
        return JournalError(
            f"the journal {self._path} or its write-ahead log was moved or removed while it was open",
            "put both back as they were; where they are gone, restore a backup",
        )


def check_application(db: sqlite3.Connection, path: str | Path) -> bool:
    """Check the application id: true for a journal, false for an empty database. Raises JournalError for anything
    else."""
    if db.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID:
        return True
    if db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise JournalError(f"{path} is a database of another program", "give the path of an apollod journal")
    return False


@contextmanager
def reading(path: str | Path) -> Iterator[sqlite3.Connection]:
    """A connection that cannot write: mode=ro and query_only. (trusted_schema stays on: SQLite 3.40 takes the JSON
    functions in our views for unsafe ones.)"""
    file = resolved(path)
    _check_permitted(file)
    _check_regular(file)
    check_not_lost(file)
    try:
        with closing(sqlite3.connect(uri(file), uri=True, timeout=5.0, isolation_level=None)) as db:
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
        for file in (path, log_of(path)):
            check_permitted(file, os.R_OK)
    except NotPermitted as refusal:
        raise JournalNotPermitted(str(refusal), refusal.hint) from refusal


def uri(path: Path) -> str:
    """URI to open a journal for reading. A write-ahead log needs files beside the journal; if they cannot be made and
    none holds rows that the journal lacks, there is no writer and the file is read as it is."""
    fixed = not os.access(path.parent, os.W_OK, effective_ids=True) and not log_of(path).exists()
    return f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if fixed else ''}"


def _text(raw: bytes) -> str:
    """Decode text; bytes that a damaged disk made invalid are replaced, and the hash chain shows the damage."""
    return raw.decode("utf-8", "replace")


# --- errors -----------------------------------------------------------------------------------------------------------


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
        what, hint = (
            f"another process holds the journal {path} locked",
            "close the SQLite shell or backup that writes to it",
        )
    elif name.startswith("SQLITE_READONLY"):
        what, hint = (
            f"the journal {path} cannot be written ({error})",
            "check owner and mode of the file and its directory",
        )
    elif name.startswith("SQLITE_CANTOPEN"):
        what, hint = (
            f"the journal {path} cannot be opened",
            "check the path, and the owner and mode of file and directory",
        )
    elif name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        what, hint = f"the journal {path} is damaged{where} ({_cut_off(path) or error})", _DAMAGED
    elif name.startswith("SQLITE_CONSTRAINT"):
        what, hint = (
            f"the journal {path} refused the events: {error}",
            "see that nothing else writes to it; else this is a bug",
        )
    failure = JournalError(what, hint)
    failure.retryable = name.startswith(("SQLITE_FULL", "SQLITE_BUSY", "SQLITE_LOCKED"))
    failure.of_disk = name.startswith(("SQLITE_IOERR", "SQLITE_CANTOPEN"))
    return failure


def _cut_off(path: str | Path) -> str:
    """True if the file is shorter than its header says (https://sqlite.org/fileformat.html, 1.3)."""
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
        disk = os.statvfs(os.path.dirname(os.path.realpath(path)))
    except OSError:
        return 0
    return disk.f_bavail * disk.f_frsize


# Estimates how fast the state directory grows, from its journal: a few dozen lookups, whatever its length.

SPAN_MIN_NS = 600 * SECOND_NS
"""a younger journal says nothing about a day"""

_HISTORY = """
    WITH written AS (SELECT seq, body ->> '$.path' AS path, body ->> '$.bytes' AS bytes FROM events
                     WHERE kind = 'checkpoint.committed'),
         removed AS (SELECT seq, body ->> '$.path' AS path FROM events
                     WHERE kind = 'checkpoint.removed' AND seq >= :first)
    SELECT (SELECT coalesce(sum(bytes), 0) FROM written WHERE seq >= :first)
         - (SELECT coalesce(sum(w.bytes), 0) FROM removed AS r JOIN written AS w ON w.seq = (
                SELECT max(seq) FROM written WHERE path = r.path AND seq < r.seq))
"""


class Growth(NamedTuple):
    """Growth during the last day before the newest event, in bytes a day; `days_left`: until the disk is full, None if
    never."""

    journal_per_day: int
    history_per_day: int
    days_left: float | None


def growth(journal: Path) -> Growth | None:
    """None for a journal that is younger than ten minutes. Blocking. Raises JournalError.

    Events are ordered by number and times are what a clock said: after a clock was set back the day may be longer or
    shorter, and the figures are as wrong as the clock.
    """
    with reading(journal) as db:
        newest = db.execute("SELECT seq, at_ns FROM events ORDER BY seq DESC LIMIT 1").fetchone()
        if newest is None:
            return None
        last, last_ns = newest
        carried, carried_bytes = _carried(db)
        if last == carried:
            return None
        first = _first_after(db, carried + 1, last, last_ns - DAY_NS)
        span_ns = last_ns - _at_ns(db, first)
        if span_ns < SPAN_MIN_NS:
            return None
        (history,) = db.execute(_HISTORY, {"first": first}).fetchone()
    grown = max(0, journal.stat().st_size - carried_bytes)
    of_file = grown * (last - first + 1) / (last - carried)  # events are of about the same length every day
    journal_per_day = int(of_file * DAY_NS / span_ns)
    history_per_day = max(0, int(history * DAY_NS / span_ns))  # what is removed makes room once
    total = journal_per_day + history_per_day
    return Growth(journal_per_day, history_per_day, round(free_bytes(journal) / total, 1) if total else None)


def _carried(db: sqlite3.Connection) -> tuple[int, int]:
    """The last event that the journal took over from its archive, and the size of the file up to there; 0 and 0 where
    it has none."""
    (seq,) = db.execute("SELECT coalesce(max(seq), 0) FROM events WHERE kind = 'journal.carried'").fetchone()
    row = db.execute("SELECT value FROM meta WHERE key = 'carried_bytes'").fetchone()
    return int(seq), int(row[0]) if row else 0


def _first_after(db: sqlite3.Connection, low: int, high: int, at_ns: int) -> int:
    """The first event between these two that is not older, by bisection."""
    while low < high:
        middle = (low + high) // 2
        if _at_ns(db, middle) >= at_ns:
            high = middle
        else:
            low = middle + 1
    return low


def _at_ns(db: sqlite3.Connection, seq: int) -> int:
    (at_ns,) = db.execute("SELECT at_ns FROM events WHERE seq = ?", (seq,)).fetchone() or (0,)
    return int(at_ns)
