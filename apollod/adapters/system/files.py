"""Files that are complete or absent: flush to disk, write beside, rename into place."""

import ctypes
import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from apollod.errors import RecordRefused

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # linux/fcntl.h, linux/fs.h
_ASIDE = ".removed-"


def fsync_file(path: Path) -> None:
    """Wait until the bytes of the file are on disk."""
    _fsync(path, os.O_RDONLY)


def fsync_dir(path: Path) -> None:
    """Wait until the names in the directory are on disk; a rename is durable only after this."""
    _fsync(path, os.O_RDONLY | os.O_DIRECTORY)


def open_without_links(path: Path) -> int:
    """A descriptor to read a file. Raises RecordRefused for a link or what is no file, OSError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise RecordRefused(f"{path} is a link", "send a directory that has the file itself") from error
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise RecordRefused(f"{path} is not a file", "send a directory that has a file of this name")


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that replaces the old one once all of it is on disk; leaves no temporary file behind. Raises
    OSError."""
    part = path.with_name(f"{path.name}.part-{os.getpid()}")
    try:
        with open(part, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        with suppress(OSError):
            part.unlink()


def put_in_place(temporary: Path, path: Path) -> None:
    """Rename a file or directory to `path`, durably. The old content of `path` is then at `temporary`, for the caller
    to remove.

    Two directories are exchanged in one operation (renameat2), so `path` is whole at every moment; where the file
    system cannot do that, there is a moment without `path`. Both lie in the same directory. Raises OSError.
    """
    if not path.exists():
        temporary.rename(path)
    elif not _exchange(temporary, path):
        aside = path.with_name(f"{path.name}.old-{os.getpid()}")
        path.rename(aside)
        temporary.rename(path)
        aside.rename(temporary)
    fsync_dir(path.parent)


def set_aside(path: Path) -> list[Path]:
    """Clear `path`, durably and at once, however large it is: it gets a hidden name beside it.

    Returns everything that was set aside there and still exists, for the caller to remove. Raises OSError.
    """
    if path.exists():
        path.rename(Path(tempfile.mkdtemp(prefix=_ASIDE, dir=path.parent), path.name))
        fsync_dir(path.parent)
    return sorted(path.parent.glob(f"{_ASIDE}*"))


def _exchange(one: Path, other: Path) -> bool:
    """Swap two names; false if the system cannot."""
    try:
        renameat2 = ctypes.CDLL(None).renameat2
    except AttributeError:  # the C library lacks it (glibc has it since 2.28)
        return False
    return bool(renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0)


def _fsync(path: Path, flags: int) -> None:
    fd = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def is_below(place: Path, directories: Iterable[str]) -> bool:
    """True if a path without links lies in one of these directories or below; `~` is the user's home."""
    return any(place.is_relative_to(os.path.realpath(Path(one).expanduser())) for one in directories)


def make_empty(directory: Path) -> None:
    """Make an empty directory accessible to us alone (0700); old content is removed. Raises OSError if another user
    owns it."""
    if directory.is_symlink() or directory.exists():
        if directory.is_symlink() or directory.stat().st_uid != os.getuid():
            raise PermissionError(f"{directory} is not ours")
        shutil.rmtree(directory)
    directory.mkdir(mode=0o700)


def of_this_process(directory: Path, kind: str) -> Path:
    """Path in a directory for data that this process keeps during its lifetime."""
    return directory / f"{kind}.tmp-{os.getpid()}"


def remove_of_the_dead(directory: Path, kind: str) -> None:
    """Remove the directories of `of_this_process` that killed processes left there: only ours, no links, and with a pid
    that no process has now. Directories that cannot be removed stay."""
    for stray in directory.glob(f"{kind}.tmp-*"):
        pid = stray.name.removeprefix(f"{kind}.tmp-")
        if pid.isascii() and pid.isdigit() and _is_ours(stray) and not _lives(pid):
            shutil.rmtree(stray, ignore_errors=True)


def _is_ours(directory: Path) -> bool:
    try:
        found = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _lives(pid: str) -> bool:
    """True if there is such a process, other than a zombie left by an init that does not reap."""
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
