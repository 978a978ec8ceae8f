"""Writes a safetensors file whose tensors come one after another, so that it is complete or absent."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

from apollod.errors import ReceiveFailed
from apollod.explain import reason
from apollod.receiver.payload import Tensor
from apollod.wire.manifest import safetensors_header
from apollod.wire.receiver_messages import part_of

BESIDE_BYTES = 1 << 16
"""fewer bytes are hashed sooner than a thread is woken for it"""


class WeightsFile:
    """A file that is being written; its digest is computed beside that, in the thread of `beside`."""

    def __init__(self, file: BinaryIO, beside: Executor) -> None:
        self._file, self._beside = file, beside
        self._digest = blake2b(digest_size=32)
        self._hashing: Future[None] | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes, which have to stay as they are until the next call or `settle`. Raises OSError."""
        self.settle()
        if len(data) < BESIDE_BYTES:
            self._digest.update(data)
        else:
            self._hashing = self._beside.submit(self._digest.update, data)
        self._file.write(data)

    def settle(self) -> None:
        """Wait until all bytes so far were hashed."""
        if self._hashing is not None:
            self._hashing.result()
            self._hashing = None

    @property
    def digest(self) -> str:
        """BLAKE2b-256 of the bytes so far, as hexadecimal digits."""
        self.settle()
        return self._digest.hexdigest()


@contextmanager
def new_weights_file(path: Path, tensors: Sequence[Tensor]) -> Iterator[WeightsFile]:
    """A file with the header of these tensors, whose data is to be written in the block, in their order. It replaces
    `path` at the end of the block, not flushed to the disk; an error leaves nothing behind. Raises ReceiveFailed where
    it cannot be written."""
    part = Path(part_of(str(path), os.getpid()))
    try:
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with open(fd, "wb") as file, ThreadPoolExecutor(1) as beside:
                weights = WeightsFile(file, beside)
                weights.write(safetensors_header((one.name, one.dtype, one.shape) for one in tensors))
                yield weights
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise ReceiveFailed(
            f"{path} cannot be written: {reason(error)}", "look at its directory and the room on that disk"
        ) from error
