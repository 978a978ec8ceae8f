"""Explains why a file or directory cannot be read, with a fix. Other modules decide about the file."""

import errno
import os
from stat import S_ISREG

from apollod.adapters.sources.unpack import Read
from apollod.core.inputs import Obstruction
from apollod.curation.formats.unread import DOCUMENT_REASON, Unread
from apollod.errors import ApolloError
from apollod.explain import reason
from apollod.permission import denied

LINK = Obstruction(
    "it is a link, and links are not followed", "watch the directory to which it leads, or copy the file"
)
NO_FILE = Obstruction("it is a pipe, socket or device and no file", "have the log written into a file")
OURS = Obstruction("the daemon writes here itself, so it is left out", "move [state] dir, or watch the others alone")
GONE = Obstruction("it is not there", "make it, or take it out: `apollod ctl source remove`")
NO_DIRECTORY = Obstruction("it is no directory", "watch the directory in which it lies")
NO_DATABASE = Obstruction(
    "it is no SQLite database", "watch the database of the agent, or the directory in which it lies"
)
UNENDED = Obstruction(
    "nobody added to it for ten minutes, and its last line has no end", "if that line is whole, add a newline"
)


COUNTED_BYTES = 64 << 20  # limit for a file whose records are only counted


def unknown_log(kind: Unread, read: Read) -> Obstruction:
    """Report a file of unknown format in a watched directory; `read` returns its content from the beginning."""
    if kind == "document":
        return Obstruction(DOCUMENT_REASON, "if it is a log, watch it where the agent writes it line by line")
    records, left = 0, COUNTED_BYTES
    while left > 0 and (piece := read(1 << 20)):
        records += piece.count(b"\n")
        left -= len(piece)
    return Obstruction(
        f"an unknown agent log, {'more than ' if left <= 0 else ''}{records} records",
        "docs/formats.md lists what can be read; `format` in [[watch]] says it where it is not recognised",
    )


def obstruction(error: Exception, path: str) -> Obstruction:
    """Reason and fix for an error (OSError, SourceRefused) that reading `path` raised."""
    if isinstance(error, ApolloError):
        return Obstruction(str(error), error.hint)
    if isinstance(error, PermissionError):
        place = os.fsdecode(error.filename) if error.filename else path
        refusal = denied(path if place == path else os.path.dirname(place))  # another path: the quarantine directory
        return Obstruction(str(refusal), f"let the daemon's user read it, or {refusal.hint}")
    if not isinstance(error, OSError):
        raise error
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
        return {errno.ENOENT: GONE, errno.ENOTDIR: NO_DIRECTORY, errno.ELOOP: LINK}[error.errno]
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Obstruction(f"its bad lines cannot be kept: {reason(error)}", "free space on the disk of [state] dir")
    return Obstruction(f"the system says: {reason(error)}", "look at its disk")


def entry_obstruction(entry: "os.DirEntry[str]", suffixes: tuple[str, ...], within: str) -> Obstruction | None:
    """Reason why an entry of a directory is not read, if a user may expect it to be read; else None. `within`: a real
    path; a link to a path below it hides nothing. Raises OSError."""
    if entry.name.startswith(".") or not (entry.name.endswith(suffixes) or entry.is_symlink()):
        return None
    if not entry.is_symlink():
        return None if S_ISREG(entry.stat(follow_symlinks=False).st_mode) else NO_FILE
    if not (entry.name.endswith(suffixes) or entry.is_dir()):
        return None
    return None if is_below(os.path.realpath(entry.path), within) else LINK


def is_below(path: str, directory: str) -> bool:
    """True if a real path is a directory's, or below it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")
