"""Translates SQLite's errors into messages about the journal."""

import os
import sqlite3
from pathlib import Path

from apollod.errors import JournalError, NotPermitted

_DAMAGED = (
    "nothing was changed; restore a backup (`apollod ctl journal verify --file FILE` tells how far a file can be "
    "read and is good, "
    "`sqlite3 FILE .recover` saves what is left of one that cannot)"
)
_DISK_ERRORS = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_IOERR")
FILE_ERRORS = (*_DISK_ERRORS, "SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_CANTOPEN")
"""Names of the errors that are of the file, not of what was asked of it."""


class JournalNotPermitted(JournalError, NotPermitted):
    """A journal that the caller may not read."""


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
