"""Keeps bytes that are not a record: one file each, named by its SHA-256, durable before an event names it."""

import os
from contextlib import suppress
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import NamedTuple

from apollod.adapters.system.files import fsync_dir
from apollod.failpoints import failpoint

KEPT_BYTES_MAX = 256 << 20  # per file; a small compressed file can unfold to terabytes. The hash is of all bytes
_TEMPORARY = ".keeping-"
_numbers = count()  # two threads may keep something at the same time


class QuarantinedFile(NamedTuple):
    """A quarantined file: its length, hash (hex) and path."""

    bytes: int
    sha256: str
    path: str


class Quarantine:
    """A directory that only its owner reads."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory

    def clear_unfinished(self) -> None:
        """Remove half-written files of a crash. Only while nothing is being kept, so at the start."""
        for path in self._directory.glob(f"{_TEMPORARY}*"):
            path.unlink()

    def keep(self, data: bytes | bytearray) -> QuarantinedFile:
        """Store bytes. Raises OSError when they cannot be written."""
        digest = sha256(data).hexdigest()
        if (kept := self._directory / f"{digest}.kept").exists():  # durable: it got its name only after that
            return QuarantinedFile(len(data), digest, str(kept))
        with self.begin() as keeping:
            keeping.write(data)
            return keeping.commit()

    def begin(self) -> "Keeping":
        """Store data piece by piece; data that is not committed at the end of the `with` is dropped."""
        return Keeping(self._directory)


class Keeping:
    """Data on its way into quarantine."""

    def __init__(self, directory: Path) -> None:
        self._temporary = directory / f"{_TEMPORARY}{os.getpid()}-{next(_numbers)}"
        fd = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(fd, "wb")
        self._hash = sha256()
        self._bytes = 0

    def __enter__(self) -> "Keeping":
        return self

    def write(self, data: bytes | bytearray) -> None:
        """Append data."""
        room = max(0, KEPT_BYTES_MAX - self._bytes)
        self._file.write(data[:room] if room < len(data) else data)
        self._hash.update(data)
        self._bytes += len(data)

    def commit(self) -> QuarantinedFile:
        """Make the file durable under its name; the same bytes twice are one file."""
        self._file.flush()
        os.fsync(self._file.fileno())
        digest = self._hash.hexdigest()
        target = self._temporary.with_name(f"{digest}.kept")
        failpoint("quarantine.before-rename")
        self._temporary.replace(target)
        fsync_dir(target.parent)
        failpoint("quarantine.kept")
        return QuarantinedFile(self._bytes, digest, str(target))

    def __exit__(self, *error: object) -> None:
        self._temporary.unlink(missing_ok=True)
        with suppress(OSError):  # a full disk did not take the bytes: `write` or `commit` has raised already
            self._file.close()
