"""Computes a 64-bit hash of every 4 KiB block, aligned to the file, to find changes without reading the old file.

The hash of a block of little-endian uint64 words w_j (the last block zero-padded), modulo 2^64:

    h = mix(sum_j mix(w_j xor (j + 1) * G)),   mix(x): x ^= x >> 32; x *= A; x ^= x >> 29; x *= B; x ^= x >> 32

`mix` is a bijection, so a block in which one word differs never collides. Otherwise each side of a difference acts like
a random number: a changed block is missed with odds of 2^-64; over the 14 million blocks of a 54 GB model, all of them
changed, 1 in 10^12. Not cryptographic: it finds changes and torn writes, not forgeries. Compiled where numba is there;
the numpy path gives the same bits.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

try:
    import numba  # type: ignore[import-untyped]
except ImportError:
    numba = None

Array = np.ndarray[Any, Any]
u64 = np.uint64

BLOCK = 4096
WORDS = BLOCK // 8
_G, _A, _B = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # the constants of splitmix64
_NUMPY_BLOCKS = 64  # at a time: temporaries stay in the second-level cache


def block_count(size: int) -> int:
    """Number of blocks of a file of `size` bytes."""
    return -(-size // BLOCK)


def block_hashes(data: Array) -> Array:
    """Hashes, uint64 [blocks], of contiguous uint8 bytes that begin at a block boundary; a short last block is
    zero-padded."""
    whole = data.size // BLOCK * BLOCK
    hashes = np.empty(block_count(data.size), u64)
    if whole:
        _hash_whole(_aligned(data[:whole]).view("<u8").reshape(-1, WORDS), hashes)
    if data.size > whole:
        last = np.zeros(BLOCK, np.uint8)
        last[: data.size - whole] = data[whole:]
        _hash_whole(last.view("<u8").reshape(-1, WORDS), hashes[-1:])
    return hashes


def _aligned(data: Array) -> Array:
    """Copy unaligned data: compiled code reads aligned words only."""
    return data if data.ctypes.data % 8 == 0 else data.copy()


def _hash_whole(words: Array, out: Array) -> None:
    if numba is None:
        hash_blocks_numpy(words, out)
    else:
        _compiled()(words, out)


def hash_blocks_numpy(words: Array, out: Array) -> None:
    """Write hashes of uint64 words [blocks, 512] into out [blocks]; the reference definition."""
    keys = np.arange(1, WORDS + 1, dtype=u64) * u64(_G)
    for start in range(0, len(words), _NUMPY_BLOCKS):
        mixed = _mix(words[start : start + _NUMPY_BLOCKS] ^ keys)
        out[start : start + _NUMPY_BLOCKS] = _mix(mixed.sum(axis=1, dtype=u64))


def _mix(words: Array) -> Array:
    x: Array = (words ^ (words >> u64(32))) * u64(_A)
    x = (x ^ (x >> u64(29))) * u64(_B)
    mixed: Array = x ^ (x >> u64(32))
    return mixed


@cache
def _compiled() -> Any:
    """The compiled kernel; the machine code is cached on disk where a cache directory is writable."""

    def kernel(words, out):  # type: ignore[no-untyped-def]
        for b in range(words.shape[0]):
            total = u64(0)
            for j in range(WORDS):
                x = words[b, j] ^ (u64(j + 1) * u64(_G))
                x = (x ^ (x >> u64(32))) * u64(_A)
                x = (x ^ (x >> u64(29))) * u64(_B)
                total += x ^ (x >> u64(32))
            x = (total ^ (total >> u64(32))) * u64(_A)
            x = (x ^ (x >> u64(29))) * u64(_B)
            out[b] = x ^ (x >> u64(32))

    words, out = numba.types.Array(numba.uint64, 2, "C", readonly=True), numba.types.Array(numba.uint64, 1, "C")
    try:
        return numba.njit((words, out), cache=True, nogil=True)(kernel)
    except RuntimeError:  # "no locator available": read-only installation and no home directory
        return numba.njit((words, out), nogil=True)(kernel)
