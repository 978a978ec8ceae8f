"""Blocks of weight files: a 64-bit hash of every 4 KiB block, aligned to the file, to find changes without reading the
old file, and the table of all hashes at the last sync, `.apollod/blocks.bin`.

The hash of a block of little-endian uint64 words w_j (the last block zero-padded), modulo 2^64:

    h = mix(sum_j mix(w_j xor (j + 1) * G)),   mix(x): x ^= x >> 32; x *= A; x ^= x >> 29; x *= B; x ^= x >> 32

`mix` is a bijection, so a block in which one word differs never collides. Otherwise each side of a difference acts like
a random number: a changed block is missed with odds of 2^-64; over the 14 million blocks of a 54 GB model, all of them
changed, 1 in 10^12. Not cryptographic: it finds changes and torn writes, not forgeries. Compiled where numba is there;
the numpy path gives the same bits.

The table:

    "APLBLKS1"  u32 bytes of the head  head (JSON)  u64 hashes, file after file  BLAKE2b-128 of all before

A cache that may be deleted: it is then computed again by reading the files once. It also detects writes by other
programs: it has size, times and inode of each file, and where those differ the bytes are compared before anything is
written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from apollod.errors import ModelEdited
from apollod.store.access import TABLE
from apollod.store.disk import Disk, FileInfo, opened
from apollod.store.model_files import WeightFile, layout_digest

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

READ_BYTES = 16 << 20
_MAGIC = b"APLBLKS1"
_CHECK_BYTES = 16


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


# --- the table --------------------------------------------------------------------------------------------------------


class _FileHead(msgspec.Struct, frozen=True):
    name: str
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int


class _Head(msgspec.Struct, frozen=True):
    schema_version: int
    layout: str
    generation: int
    step: int
    files: list[_FileHead]


@dataclass(frozen=True)
class FileBlocks:
    """One file: `hashes` uint64 [blocks] and the stat values (`identity`) of the moment when they were correct."""

    name: str
    size: int
    identity: tuple[int, int, int]
    hashes: Array


@dataclass(frozen=True)
class BlockTable:
    """All files of a model. `generation`: number of syncs, 0 for weights as found; `step`: of the weights, as the
    caller said."""

    layout: str
    generation: int
    step: int
    files: dict[str, FileBlocks]


def current_table(
    disk: Disk,
    directory: Path,
    files: Sequence[WeightFile],
    accept_edits: bool = False,
    known: BlockTable | None = None,
) -> BlockTable:
    """Return the hashes of the files as they are on disk now. `known`: result of an earlier call.

    Files that look untouched are not read. Raises ModelEdited where a file differs from its entry in the table, unless
    `accept_edits`; a missing or damaged table is computed again.
    """
    layout = layout_digest(files)
    stored = read_table(disk, directory)
    if stored is not None and stored.layout != layout:
        if not accept_edits:
            raise ModelEdited(
                f"the weight files of {directory} are not those of sync {stored.generation}: names or headers differ",
                _EDITED,
            )
        stored = None
    found = {file.name: _current(disk, directory, file, known or stored) for file in files}
    if stored is None:
        return BlockTable(layout, 0, 0, found)
    if not accept_edits and (edited := differing(stored, found)):
        raise ModelEdited(
            f"{_listed(edited)} in {directory} changed after sync {stored.generation} (step {stored.step}), and "
            "not by apollod; "
            "nothing was written",
            _EDITED,
        )
    return replace(stored, files=found)


_EDITED = (
    "if the edit is meant, sync with --accept-edits; else restore the files, or sync from a directory that has the "
    "right weights"
)


def differing(stored: BlockTable, found: dict[str, FileBlocks]) -> dict[str, int]:
    """File -> number of blocks that differ from the table."""
    counts = {name: _unequal(stored.files[name].hashes, blocks.hashes) for name, blocks in found.items()}
    return {name: count for name, count in counts.items() if count}


def _unequal(one: Array, other: Array) -> int:
    return int((one != other).sum()) if one.size == other.size else max(one.size, other.size)


def _listed(edited: dict[str, int]) -> str:
    return ", ".join(f"{name} ({count} blocks of {BLOCK} bytes)" for name, count in edited.items())


def _current(disk: Disk, directory: Path, file: WeightFile, stored: BlockTable | None) -> FileBlocks:
    path = str(directory / file.name)
    info = _stat(disk, path)
    if (
        stored is not None
        and stored.files[file.name].identity == identity(info)
        and stored.files[file.name].size == info.size
    ):
        return stored.files[file.name]
    return FileBlocks(file.name, info.size, identity(info), hash_file(disk, path, info.size))


def identity(info: FileInfo) -> tuple[int, int, int]:
    """Stat values that change with every write to the file and with its replacement."""
    return info.mtime_ns, info.ctime_ns, info.inode


def _stat(disk: Disk, path: str) -> FileInfo:
    info = disk.stat(path)
    if info is None:
        raise FileNotFoundError(2, "No such file", path)
    return info


def hash_file(disk: Disk, path: str, size: int) -> Array:
    """Block hashes of a file, by one pass over it."""
    hashes = [block_hashes(data) for _, data in read_windows(disk, path, size)]
    return np.concatenate(hashes) if hashes else np.empty(0, np.uint64)


def read_windows(disk: Disk, path: str, size: int) -> Iterator[tuple[int, Array]]:
    """(offset, bytes) of a file of `size` bytes, whole blocks at a time."""
    with opened(disk, path) as fd:
        for offset in range(0, size, READ_BYTES):
            data = disk.read(fd, offset, min(READ_BYTES, size - offset))
            if len(data) != min(READ_BYTES, size - offset):
                raise OSError(f"{path} ends at byte {offset + len(data)} of {size}")
            yield offset, np.frombuffer(data, np.uint8)


def read_table(disk: Disk, directory: Path) -> BlockTable | None:
    """The stored table; None where it is missing or damaged."""
    path = str(directory / TABLE)
    info = disk.stat(path)
    if info is None:
        return None
    with opened(disk, path) as fd:
        data = disk.read(fd, 0, info.size)
    if len(data) < 12 + _CHECK_BYTES or data[:8] != _MAGIC or _check(data[:-_CHECK_BYTES]) != data[-_CHECK_BYTES:]:
        return None
    start = 12 + int.from_bytes(data[8:12], "little")
    head = msgspec.json.decode(data[12:start], type=_Head)
    hashes = np.frombuffer(data[start:-_CHECK_BYTES], "<u8")
    files, at = {}, 0
    for file in head.files:
        count = block_count(file.size)
        stamp = (file.mtime_ns, file.ctime_ns, file.inode)
        files[file.name] = FileBlocks(file.name, file.size, stamp, hashes[at : at + count])
        at += count
    return BlockTable(head.layout, head.generation, head.step, files)


def write_table(disk: Disk, directory: Path, table: BlockTable) -> int:
    """Put the table in place, durable after an fsync_dir by the caller; return the number of its bytes."""
    files = list(table.files.values())
    heads = [_FileHead(file.name, file.size, *file.identity) for file in files]
    head = msgspec.json.encode(_Head(1, table.layout, table.generation, table.step, heads))
    data = b"".join(
        [_MAGIC, len(head).to_bytes(4, "little"), head, *(file.hashes.astype("<u8").tobytes() for file in files)]
    )
    path = str(directory / TABLE)
    fd = disk.create(f"{path}.tmp")
    try:
        disk.write(fd, 0, data + _check(data))
        disk.fsync(fd)
    finally:
        disk.close(fd)
    disk.rename(f"{path}.tmp", path)
    return len(data) + _CHECK_BYTES


def stamped(disk: Disk, directory: Path, table: BlockTable) -> BlockTable:
    """The table with the current stat values of the files."""
    files = {
        name: replace(blocks, identity=identity(_stat(disk, str(directory / name))))
        for name, blocks in table.files.items()
    }
    return replace(table, files=files)


def _check(data: bytes) -> bytes:
    return blake2b(data, digest_size=_CHECK_BYTES).digest()
