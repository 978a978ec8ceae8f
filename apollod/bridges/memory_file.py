"""`shared` on CPU: an anonymous memory file, which the supervisor holds and engine and trainer map.

On a GPU it is `cuda_ipc`. Why a memory file: docs/decisions/0002.
"""

import fcntl
import mmap
import os

from apollod.errors import ShareRefused


class SharedMemory:
    """An anonymous memory file (memfd_create(2)) of `size` bytes, which leaves nothing behind when its users end."""

    def __init__(self, size: int) -> None:
        self.fd = os.memfd_create("apollod-weights", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, size)
        # No process may shrink it under a mapping: that would be SIGBUS in the engine.
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        self.size = size

    def close(self) -> None:
        """Close the descriptor; the kernel frees the memory with the last mapping."""
        os.close(self.fd)


def map_memory(fd: int, size: int) -> mmap.mmap:
    """Map `size` bytes of a memory file, shared and writable. Takes over `fd` and closes it; the mapping stays.

    Raises ShareRefused if the file is shorter: a page behind its end would be SIGBUS later.
    """
    try:
        found = os.fstat(fd).st_size
        if not 0 < size <= found:
            raise ShareRefused(
                f"a memory file of {size} bytes is announced, it has {found}", "use one version of apollod everywhere"
            )
        return mmap.mmap(fd, size)
    finally:
        os.close(fd)
