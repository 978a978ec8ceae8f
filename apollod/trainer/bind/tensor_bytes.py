"""Reads the bytes of a tensor from its file without room for all of it: block by block, or straight into its place."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from apollod.errors import ModelRefused
from apollod.store.model_files import StoredTensor

BLOCK_BYTES = 1 << 20  # stays in a processor's cache; a multiple of every element


def blocks(directory: Path, stored: StoredTensor) -> Iterator[memoryview]:
    """The bytes of one tensor of a file in `directory`, at most BLOCK_BYTES at once, each block in the place of the one
    before. Raises ModelRefused for a file that ends inside the tensor."""
    room = memoryview(bytearray(min(BLOCK_BYTES, stored.bytes)))
    with closing(_Reading(directory, stored)) as reading:
        for start in range(0, stored.bytes, BLOCK_BYTES):
            block = room[: min(BLOCK_BYTES, stored.bytes - start)]
            reading.fill(block, start)
            yield block


def read_into(directory: Path, stored: StoredTensor, place: memoryview) -> None:
    """Fill `place`, as large as the tensor. Raises ModelRefused for a file that ends inside it: a part may be
    written then."""
    with closing(_Reading(directory, stored)) as reading:
        reading.fill(place, 0)


class _Reading:
    def __init__(self, directory: Path, stored: StoredTensor) -> None:
        self._path, self._stored = directory / stored.file, stored
        self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)

    def fill(self, into: memoryview, start: int) -> None:
        at = self._stored.start + start
        while into:
            count = os.preadv(self._fd, [into], at)
            if not count:
                raise ModelRefused(f"{self._path} ends inside {self._stored.name}", "copy the model again")
            into, at = into[count:], at + count

    def close(self) -> None:
        os.close(self._fd)
