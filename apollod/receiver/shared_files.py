"""Opens the files in which a trainer on this machine has laid tensors ready: only where that is allowed, no links, and
read by copying. A mapping would be SIGBUS where the file is cut short meanwhile."""

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from apollod.adapters.system.files import is_below
from apollod.errors import ReceiveFailed
from apollod.explain import reason

SHARED_MEMORY = "/dev/shm"
SHOWN = 200  # characters of a path that is refused

_WHERE = "lay the tensors into a file in /dev/shm, or below one of [control] directories, on this machine"


class SharedFile:
    """An open file. `bytes`: its size when it was opened."""

    def __init__(self, path: str, directories: Sequence[str]) -> None:
        """Open a regular file of this user in shared memory or below `directories`. Raises ReceiveFailed."""
        self._path = path[:SHOWN]
        place = self._allowed(path, directories)
        try:  # not blocking, since it may be a pipe
            self._fd = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise ReceiveFailed(f"{self._path} is a link", "hand over the file itself") from error
            raise ReceiveFailed(f"{self._path} cannot be opened: {reason(error)}", _WHERE) from error
        try:
            self.bytes = self._checked(place)
        except BaseException:
            self.close()
            raise

    def _allowed(self, path: str, directories: Sequence[str]) -> Path:
        """The path without links in its directories."""
        if not os.path.isabs(path) or "\0" in path or path.rpartition("/")[2] in ("", ".", ".."):
            raise ReceiveFailed(f"{self._path!r} is not the absolute path of a file", _WHERE)
        place = Path(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        if not is_below(place, (SHARED_MEMORY, *directories)):
            raise ReceiveFailed(f"{self._path} lies where no weights are read", _WHERE)
        return place

    def _checked(self, place: Path) -> int:
        found = os.fstat(self._fd)
        if not stat.S_ISREG(found.st_mode):
            raise ReceiveFailed(f"{self._path} is not a regular file", _WHERE)
        if found.st_uid != os.geteuid():
            raise ReceiveFailed(
                f"{self._path} belongs to another user ({found.st_uid})", "run trainer and apollod as one user"
            )
        if os.readlink(f"/proc/self/fd/{self._fd}") != str(place):  # a directory became a link, or it was removed
            raise ReceiveFailed(f"{self._path} was moved or removed meanwhile", "keep it until the answer")
        return found.st_size

    def check(self, offset: int, count: int) -> None:
        """Raise ReceiveFailed unless these bytes lie inside the file."""
        if offset < 0 or count < 0 or offset + count > self.bytes:
            raise ReceiveFailed(
                f"bytes {offset}..{offset + count} lie outside {self._path} of {self.bytes}",
                "hand over offset and bytes as they lie in the file",
            )

    def read(self, offset: int, into: memoryview) -> None:
        """Fill `into` from `offset` on. Raises ReceiveFailed for a file that ends before."""
        while into:
            try:
                count = os.preadv(self._fd, [into], offset)
            except OSError as error:
                raise ReceiveFailed(f"{self._path} cannot be read: {reason(error)}", "send it again") from error
            if not count:
                raise ReceiveFailed(f"{self._path} was cut short while it was read", "keep it until the answer")
            into, offset = into[count:], offset + count

    def close(self) -> None:
        """Close it."""
        os.close(self._fd)
