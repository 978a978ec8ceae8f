"""Identifies files whatever their name: by device, inode and a hash of their beginning.

Also tells whether a file still continues the part that was read.
"""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import BinaryIO

from apollod.adapters.sources.unpack import Read
from apollod.core.facts.intake.state import Position

# Both numbers are part of identities and positions in journals; with others, every file would be read again.
PREFIX_BYTES = 64 << 10  # of the first line: long enough to tell logs that begin with the same long system prompt apart
TAIL_BYTES = 4 << 10  # before a position


@dataclass
class Candidate:
    """An open file, its identity, and the position to read from."""

    path: str
    file: BinaryIO
    status: os.stat_result
    position: Position
    new: bool
    replaces: str = ""


def open_regular(path: str) -> BinaryIO | None:
    """Open the file if it is a regular one and exists, else None; never waits on a pipe, never follows a link."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return os.fdopen(fd, "rb")
    os.close(fd)
    return None


def identify(
    path: str, file: BinaryIO, status: os.stat_result, packed: bool, known: Mapping[str, Position]
) -> Candidate | None:
    """Return the file's identity and position; None if it is empty or has no complete line yet."""
    prefix = os.pread(file.fileno(), PREFIX_BYTES, 0)
    if packed:
        prefix += b"%d" % status.st_size  # it is read as a whole: with another size it is another file
        if not status.st_size:
            return None
    elif (end := prefix.find(b"\n")) >= 0:
        prefix = prefix[: end + 1]
    elif len(prefix) < PREFIX_BYTES:
        return None
    identity = _digest(b"%d %d " % (status.st_dev, status.st_ino) + prefix)
    position = known.get(identity)
    if position is None:
        return Candidate(path, file, status, Position(identity, 0, 0), new=True)
    if not packed and not _continues(file, status, position):
        return Candidate(path, file, status, position.anew(), new=True, replaces=position.source)
    return Candidate(path, file, status, position, new=False)


def tail_digest(file: BinaryIO, offset: int) -> str:
    """Digest of the last bytes before an offset."""
    return _digest(_tail(file, offset))


def read_from(file: BinaryIO, offset: int) -> Read:
    """Return a function that reads the file from `offset` on, independent of the file's own position."""

    def read(size: int) -> bytes:
        nonlocal offset
        data = os.pread(file.fileno(), size, offset)
        offset += len(data)
        return data

    return read


def _continues(file: BinaryIO, status: os.stat_result, position: Position) -> bool:
    """True if the bytes read so far are still before the position; false if the file was truncated and rewritten.

    The bytes before the position must be the recorded ones; if the journal does not record them, a line must end there.
    """
    if status.st_size < position.offset:
        return False
    tail = _tail(file, position.offset)
    return _digest(tail) == position.tail if position.tail else tail.endswith(b"\n")


def _tail(file: BinaryIO, offset: int) -> bytes:
    """Up to TAIL_BYTES before an offset."""
    length = min(offset, TAIL_BYTES)
    return os.pread(file.fileno(), length, offset - length)


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()[:24]
