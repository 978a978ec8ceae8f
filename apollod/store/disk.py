"""File operations of a sync as one protocol, so that a test can substitute a disk that loses power.

Paths are plain strings. Every method raises OSError and nothing is tried again: after a failed fsync the kernel marks
the pages clean, so a second fsync that succeeds says nothing about the bytes (Rebello et al., USENIX ATC 2020).
"""

import errno
import fcntl
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, NamedTuple, Protocol

Buffer = Any
"""Anything that os.pwrite takes: bytes, a contiguous array."""

_FICLONE = 0x40049409  # linux/fs.h


class FileInfo(NamedTuple):
    """Stat fields that distinguish one state of a file from another. `links`: number of hard links."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    links: int


class Disk(Protocol):
    """File operations, each durable only after the fsync that its docstring names."""

    def stat(self, path: str) -> FileInfo | None:
        """Return stat fields, None for a missing file; raise OSError for anything but a regular file."""

    def names(self, directory: str) -> list[str]:
        """Sorted names; empty for a missing directory."""

    def make_dir(self, path: str) -> None:
        """Make a directory unless it exists. Durable with fsync_dir of its parent."""

    def open(self, path: str, write: bool = False) -> int:
        """Open an existing file; for writing, not through a symbolic link."""

    def create(self, path: str, like: str | None = None) -> int:
        """Create an empty file; an older one is replaced. `like`: the file whose mode it gets, else 0600."""

    def close(self, fd: int) -> None: ...

    def read(self, fd: int, offset: int, count: int) -> bytes:
        """Read `count` bytes; fewer only at the end of the file."""

    def write(self, fd: int, offset: int, data: Buffer) -> None:
        """Write all of the data. Durable with fsync or fdatasync of the file."""

    def direct(self, fd: int, on: bool) -> bool:
        """Switch writes past the page cache on or off; return True if they now bypass it. They then have to be whole 4
        KiB blocks in aligned memory; a finished write needs its fsync like any other."""

    def clone(self, source: int, target: int) -> bool:
        """Let the empty file `target` share the blocks of `source`; return False where the file system cannot."""

    def fsync(self, fd: int) -> None: ...

    def fdatasync(self, fd: int) -> None:
        """Flush the bytes and the size, not the times."""

    def rename(self, source: str, target: str) -> None:
        """Rename over `target`. Durable with fsync_dir of the directory of `target`."""

    def unlink(self, path: str) -> None:
        """Remove a file. Durable with fsync_dir of its directory."""

    def fsync_dir(self, path: str) -> None: ...

    def let_go_later(self, paths: list[str]) -> AbstractContextManager[None]:
        """Free the blocks of files that are removed or replaced inside the block in the background."""


@contextmanager
def opened(disk: Disk, path: str, write: bool = False) -> Iterator[int]:
    """Open a file; it is closed at the end of the block."""
    fd = disk.open(path, write)
    try:
        yield fd
    finally:
        disk.close(fd)


class RealDisk:
    """The operating system's files."""

    def stat(self, path: str) -> FileInfo | None:
        try:
            found = os.stat(path)
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{path} is no regular file")
        return FileInfo(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_nlink)

    def names(self, directory: str) -> list[str]:
        try:
            return sorted(os.listdir(directory))
        except FileNotFoundError:
            return []

    def make_dir(self, path: str) -> None:
        os.makedirs(path, mode=0o755, exist_ok=True)

    def open(self, path: str, write: bool = False) -> int:
        return os.open(path, (os.O_RDWR | os.O_NOFOLLOW if write else os.O_RDONLY) | os.O_CLOEXEC)

    def create(self, path: str, like: str | None = None) -> int:
        mode = stat.S_IMODE(os.stat(like).st_mode) if like else 0o600
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        if mode != 0o600:
            os.fchmod(fd, mode)
        return fd

    def close(self, fd: int) -> None:
        os.close(fd)

    def read(self, fd: int, offset: int, count: int) -> bytes:
        data = os.pread(fd, count, offset)
        while data and len(data) < count:  # one call returns 2 GiB at most
            more = os.pread(fd, count - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def write(self, fd: int, offset: int, data: Buffer) -> None:
        view = memoryview(data).cast("B")
        while view:
            try:
                written = os.pwrite(fd, view, offset)
            except OSError as error:  # too little alignment for this file system, or the rest of a write cut short
                if error.errno != errno.EINVAL or not fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT:
                    raise
                self.direct(fd, False)
                continue
            view, offset = view[written:], offset + written

    def direct(self, fd: int, on: bool) -> bool:
        flags = fcntl.fcntl(fd, fcntl.F_GETFL)
        try:
            fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_DIRECT if on else flags & ~os.O_DIRECT)
        except OSError:
            return False
        return on

    def clone(self, source: int, target: int) -> bool:
        try:
            fcntl.ioctl(target, _FICLONE, source)
        except OSError:
            return False
        return True

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def fdatasync(self, fd: int) -> None:
        os.fdatasync(fd)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def fsync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    @contextmanager
    def let_go_later(self, paths: list[str]) -> Iterator[None]:
        """Hold the files open and close them in a thread: ext4 takes 0.2 s per GiB to free one. After a crash the file
        system frees them, because they have no name."""
        fds = []
        for path in paths:
            with suppress(OSError):
                fds.append(os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC))
        try:
            yield
        finally:
            if fds:
                threading.Thread(target=_close_all, args=(fds,), name="let-go").start()


def _close_all(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


REAL = RealDisk()
