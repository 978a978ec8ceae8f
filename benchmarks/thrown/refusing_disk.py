"""Makes a daemon's writes fail with a chosen errno while a test wants it: see refusing_disk.c. Needs gcc, and no
privileges."""

import errno
import mmap
import os
import shutil
import struct
import subprocess
from pathlib import Path

WRITE, SYNC, OPEN, NAME, LOG = 1, 2, 4, 8, 16
"""file writes, fsync, creating and opening, names (rename, mkdir, unlink), writes to standard streams"""
ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EDQUOT, errno.EROFS, errno.EMFILE)
FAILING = (WRITE, SYNC, OPEN, NAME, LOG, WRITE | SYNC, WRITE | SYNC | OPEN | NAME)
SOURCE = Path(__file__).with_suffix(".c")
_ORDERS = struct.Struct("=6i")


class RefusingDisk:
    """Orders for processes that were started with `environment`."""

    def __init__(self, directory: Path) -> None:
        self._library, self._file = directory / "refusing_disk.so", directory / "refusing_disk"
        build = ["gcc", "-shared", "-fPIC", "-O1", "-o", str(self._library), str(SOURCE), "-ldl"]
        subprocess.run(build, check=True)
        self._file.write_bytes(bytes(_ORDERS.size))
        with self._file.open("r+b") as file:
            self._orders = mmap.mmap(file.fileno(), _ORDERS.size)

    @staticmethod
    def is_possible() -> bool:
        """Is gcc there to build it?"""
        return shutil.which("gcc") is not None

    @property
    def environment(self) -> dict[str, str]:
        preload = " ".join([str(self._library), *os.environ.get("LD_PRELOAD", "").split()])
        return {"LD_PRELOAD": preload, "REFUSING_DISK": str(self._file)}

    def refuse(self, pid: int, error: int, kinds: int, after: int, count: int) -> None:
        """In that process, let `after` calls of these kinds succeed, and then `count` calls fail."""
        self._orders[:] = _ORDERS.pack(pid, error, kinds, after, count, 0)

    def relent(self) -> int:
        """End all failures; returns the number of failed calls."""
        hits: int = _ORDERS.unpack(self._orders[:])[-1]
        self._orders[:] = bytes(_ORDERS.size)
        return hits
