"""Writes many bytes to a new file in order, by a thread of its own and past the page cache where the file system
allows.

1 GiB through the page cache takes nearly twice as long (docs/decisions/0011): every page is new memory, and is looked
at twice more to be written and to be thrown away. The bytes go through two buffers, so that the caller hashes while the
disk writes; this also gives them the alignment that such writes need. Where the file system cannot bypass the page
cache, the bytes are written at once, without a copy.
"""

import mmap
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import numpy as np

from apollod.store.block_table import BLOCK, Array
from apollod.store.disk import Disk

BUFFER_BYTES = 8 << 20  # of a multiple of BLOCK


class Appender:
    """Appends bytes from offset `start` on, a multiple of BLOCK. The file may lack any of them before `drain`."""

    def __init__(self, disk: Disk, fd: int, start: int = 0) -> None:
        self._disk, self._fd = disk, fd
        self._at = start
        """File offset of the buffer that is being filled."""
        self._filled = 0
        self._buffers: list[Array] = []
        self._pool: ThreadPoolExecutor | None = None
        self._running: Future[None] | None = None
        self._direct = disk.direct(fd, True)

    def add(self, data: Array, lasting: bool = False) -> None:
        """Append uint8 [n], contiguous; the array may change as soon as this returns. Raises OSError, also for earlier
        data.

        `lasting`: whole blocks that begin at a page and do not change before `drain`: written without a copy.
        """
        if not self._direct:
            self._disk.write(self._fd, self._at, data)
            self._at += data.size
            return
        if lasting:
            if self._filled:
                self._hand_over(self._buffer()[: self._filled])
            self._hand_over(data)
            return
        while data.size:
            part = data[: BUFFER_BYTES - self._filled]
            self._buffer()[self._filled : self._filled + part.size] = part
            self._filled += part.size
            data = data[part.size :]
            if self._filled == BUFFER_BYTES:
                self._hand_over(self._buffer())

    def drain(self) -> None:
        """Write everything to the file; the caller flushes it. A remainder that does not fill a block goes through the
        page cache."""
        if not self._direct:
            return
        rest = self._buffer()[: self._filled] if self._filled else np.empty(0, np.uint8)
        whole = rest.size // BLOCK * BLOCK
        if whole:
            self._hand_over(rest[:whole])
        self.stop()
        self._disk.direct(self._fd, False)
        self._direct = False
        if rest.size > whole:
            self._disk.write(self._fd, self._at, rest[whole:])
        self._at += rest.size - whole
        self._filled, self._buffers = 0, []

    def stop(self) -> None:
        """Wait for the thread: the descriptor must not be closed before. Raises the thread's error."""
        pool, self._pool = self._pool, None
        try:
            self._wait()
        finally:
            if pool is not None:
                pool.shutdown()

    def abandon(self) -> None:
        """`stop`, with errors ignored."""
        with suppress(OSError):
            self.stop()

    def _buffer(self) -> Array:
        if not self._buffers:  # shared memory: after a fork in the middle of a write, the disk still reads this memory
            self._buffers = [np.frombuffer(mmap.mmap(-1, BUFFER_BYTES), np.uint8) for _ in range(2)]
        return self._buffers[0]

    def _hand_over(self, data: Array) -> None:
        """Pass whole blocks to the thread once it has written the previous ones."""
        self._wait()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="append")
        self._running = self._pool.submit(self._disk.write, self._fd, self._at, data)
        self._buffers.reverse()
        self._at += data.size
        self._filled = 0

    def _wait(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.result()
