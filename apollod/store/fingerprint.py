"""Computes the fingerprint of weights in files (a 64-bit number that identifies them exactly), with numpy alone.

f of a tensor = K * (2 * S1 + S0) with S0 = sum w_j, S1 = sum j * w_j over its little-endian uint32 words (zero-padded),
all modulo 2^64; F of a model = sum of f * (1 | first 8 bytes, little-endian, of BLAKE2b-256(name)). The trainer
computes the same number for the weights in memory.
"""

import hashlib
from pathlib import Path

import numpy as np

from apollod.errors import ModelRefused
from apollod.store.block_table import Array
from apollod.store.disk import REAL, Disk, opened
from apollod.store.model_files import StoredTensor, read_files

_K = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_READ_BYTES = 16 << 20  # a multiple of _BLOCK_WORDS words
_BLOCK_WORDS = 1 << 16  # temporaries of half a megabyte, and sums below 2^64


def directory_fingerprint(directory: Path, disk: Disk = REAL) -> str:
    """F of the model as 16 hex digits. Raises ModelRefused for an incomplete model, OSError where it cannot be read."""
    found = Fingerprint()
    for file in read_files(directory, disk):
        with opened(disk, str(directory / file.name)) as fd:
            for tensor in file.tensors:
                _add_tensor(found, disk, fd, tensor)
    return found.text()


class Fingerprint:
    """Computes F of weights that are added tensor after tensor in any order."""

    def __init__(self) -> None:
        self._total = 0

    def add(self, name: str, offset: int, data: Array) -> None:
        """Add uint8 bytes of a tensor from `offset` on, a multiple of 4; f is linear, so parts of a tensor simply add
        up."""
        padded = data if data.size % 4 == 0 else np.pad(data, (0, -data.size % 4))
        low, weighted = sums(np.frombuffer(padded.data, "<u4"))
        self._total += share(name, _K * (2 * (weighted + offset // 4 * low) + low) & _MASK)

    def text(self) -> str:
        """F as 16 hex digits."""
        return f"{self._total & _MASK:016x}"


def share(name: str, fingerprint: int) -> int:
    """Contribution of tensor `name` with fingerprint f to the model's (not reduced)."""
    digest = hashlib.blake2b(name.encode(), digest_size=32).digest()
    return fingerprint * (1 | int.from_bytes(digest[:8], "little"))


def _add_tensor(found: Fingerprint, disk: Disk, fd: int, tensor: StoredTensor) -> None:
    for offset in range(0, tensor.bytes, _READ_BYTES):
        data = disk.read(fd, tensor.start + offset, min(_READ_BYTES, tensor.bytes - offset))
        if len(data) != min(_READ_BYTES, tensor.bytes - offset):
            raise ModelRefused(f"{tensor.file} ends inside {tensor.name}", "copy the model again")
        found.add(tensor.name, offset, np.frombuffer(data, np.uint8))


def sums(words: Array) -> tuple[int, int]:
    """(S0, S1) of uint32 words: their sum, and the sum of index times word."""
    index = np.arange(_BLOCK_WORDS, dtype=np.uint64)
    s0 = s1 = 0
    for start in range(0, words.size, _BLOCK_WORDS):
        block = words[start : start + _BLOCK_WORDS].astype(np.uint64)
        total = int(block.sum())
        s0 += total
        s1 += start * total + int(np.dot(index[: block.size], block))
    return s0, s1
