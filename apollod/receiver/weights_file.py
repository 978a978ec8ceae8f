"""Writes a safetensors file whose tensors come one after another, so that it is complete or absent."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

from apollod.adapters.system.files import fsync_dir
from apollod.receiver.payload import Tensor
from apollod.wire.receiver_messages import part_of

NAMES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}
"""names of dtypes in safetensors"""


class WeightsFile:
    """A file that is being written. `digest` is that of the bytes so far."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._digest = file, blake2b(digest_size=32)

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes. Raises OSError."""
        self._file.write(data)
        self._digest.update(data)

    @property
    def digest(self) -> str:
        """BLAKE2b-256 as hexadecimal digits."""
        return self._digest.hexdigest()


@contextmanager
def new_weights_file(path: Path, tensors: Sequence[Tensor]) -> Iterator[WeightsFile]:
    """A file with the header of these tensors, whose data is to be written in the block, in their order. It replaces
    `path`, durably, at the end of the block; an error leaves nothing behind. Raises OSError."""
    part = Path(part_of(str(path), os.getpid()))
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as file:
            weights = WeightsFile(file)
            weights.write(header_of(tensors))
            yield weights
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        fsync_dir(path.parent)
    finally:
        part.unlink(missing_ok=True)


def header_of(tensors: Sequence[Tensor]) -> bytes:
    """Length and header (github.com/huggingface/safetensors, "Format"); the data has the order of the tensors."""
    entries, end = {}, 0
    for one in tensors:
        start, end = end, end + one.bytes
        entries[one.name] = {"dtype": NAMES[one.dtype], "shape": one.shape, "data_offsets": [start, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
