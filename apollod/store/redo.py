"""`.apollod/redo`: remaining work of a committed sync. Its rename into place is the commit point of all files at once.

    one page: "APLREDO1", zeros
    images: whole 4 KiB blocks (the last one of a file zero-padded), file after file
    tail: for each file the u64 numbers of its blocks (only where blocks are written in place) and their u64 hashes
    head (JSON), then 48 bytes: "APLREDO1", u64 offset of the tail, u64 bytes of the head, BLAKE2b-192 of tail, head and
    these

Whole blocks, because a block that was torn by a power cut cannot be repaired from a difference. Images are checked by
their hashes, which are themselves under the BLAKE2b sum.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from apollod.errors import RedoRefused
from apollod.store.access import OURS, REDO
from apollod.store.appending import Appender
from apollod.store.block_table import BLOCK, Array, block_count, block_hashes
from apollod.store.disk import Disk, opened

REDO_TMP = f"{OURS}/redo.tmp"
NEW = f"{OURS}/new."
"""Prefix of a file's name: a complete new file, not yet in its place."""

How = Literal["unchanged", "blocks", "reflink", "rewrite"]
"""How a sync updates a file: not at all; blocks in place through the redo record; a new file that shares the old one's
blocks; a new file."""

BATCH_BLOCKS = 16384  # images read back at a time: 64 MiB
_MAGIC = b"APLREDO1"
_FOOT_BYTES = 48
_SUM_BYTES = 24


class RedoFile(msgspec.Struct, frozen=True):
    """Part of one file. `image`: offset of its first image; `count`: number of its blocks in the tail."""

    name: str
    how: How
    size: int
    image: int
    count: int


class RedoHead(msgspec.Struct, frozen=True):
    """`base`: the generation that the blocks were compared with."""

    schema_version: int
    layout: str
    base: int
    generation: int
    step: int
    files: list[RedoFile]


@dataclass(frozen=True)
class Part:
    """A file with its blocks. `blocks` uint64 [count] ascending, `hashes` uint64 [count] of their new content.

    `kept`: the first images of the part, as far as they are still in memory; the others are read back.
    """

    file: RedoFile
    blocks: Array
    hashes: Array
    kept: tuple[Array, ...] = ()


@dataclass(frozen=True)
class Redo:
    """A redo record as read back."""

    path: str
    head: RedoHead
    parts: list[Part]


class RedoWriter:
    """Writes redo.tmp; the file does not exist before `add` or `close`."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._path = str(directory / REDO_TMP)
        self._fd = -1
        self._out: Appender | None = None
        self.end = BLOCK
        """Offset at which the next image is written."""

    def add(self, images: Array, lasting: bool = False) -> None:
        """Append images, uint8 [n, 4096]. `lasting`: they begin at a page and do not change before the record is read
        or closed."""
        fd = self._open()
        if self._out is None:
            self._out = Appender(self._disk, fd, self.end)
        self._out.add(images.reshape(-1), lasting)
        self.end += images.size

    def read(self, offset: int, count: int) -> Array:
        """Read images written before, uint8 [count, 4096]."""
        self._drain()
        return np.frombuffer(self._disk.read(self._open(), offset, count * BLOCK), np.uint8).reshape(-1, BLOCK)

    def close(self, head: RedoHead, parts: list[Part]) -> int:
        """Write the tail and wait until everything is on disk; return the number of bytes."""
        fd = self._open()
        arrays = [array.astype("<u8").tobytes() for part in parts for array in _tail_arrays(part)]
        text = msgspec.json.encode(head)
        foot = _MAGIC + self.end.to_bytes(8, "little") + len(text).to_bytes(8, "little")
        tail = b"".join([*arrays, text, foot])
        self._drain()
        self._disk.write(fd, 0, _MAGIC.ljust(BLOCK, b"\0"))
        self._disk.write(fd, self.end, tail + _sum(tail))
        self._disk.fsync(fd)
        self.abandon()
        return self.end + len(tail) + _SUM_BYTES

    def abandon(self) -> None:
        """Close the descriptor."""
        if self._out is not None:
            self._out.abandon()
            self._out = None
        if self._fd >= 0:
            self._disk.close(self._fd)
            self._fd = -1

    def _drain(self) -> None:
        out, self._out = self._out, None
        if out is not None:
            try:
                out.drain()
            except BaseException:
                out.abandon()
                raise

    def _open(self) -> int:
        if self._fd < 0:
            self._fd = self._disk.create(self._path)
        return self._fd


def _tail_arrays(part: Part) -> list[Array]:
    return [part.blocks, part.hashes] if part.file.how == "blocks" else [part.hashes]


def read_redo(disk: Disk, directory: Path) -> Redo | None:
    """Read the record and check its tail; None where there is no record. Raises RedoRefused for a damaged one."""
    path = str(directory / REDO)
    info = disk.stat(path)
    if info is None:
        return None
    with opened(disk, path) as fd:
        foot = disk.read(fd, max(0, info.size - _FOOT_BYTES), _FOOT_BYTES)
        start, length = int.from_bytes(foot[8:16], "little"), int.from_bytes(foot[16:24], "little")
        tail_end = info.size - _FOOT_BYTES
        if foot[:8] != _MAGIC or not BLOCK <= start <= tail_end - length:
            raise _damaged(path, "it has no whole end")
        tail = disk.read(fd, start, info.size - start)
    if _sum(tail[:-_SUM_BYTES]) != tail[-_SUM_BYTES:]:
        raise _damaged(path, "its checksum is wrong")
    head = msgspec.json.decode(tail[tail_end - length - start : tail_end - start], type=RedoHead)
    return Redo(path, head, _parts(head, np.frombuffer(tail[: tail_end - length - start], "<u8")))


def _parts(head: RedoHead, numbers: Array) -> list[Part]:
    parts, at = [], 0
    for file in head.files:
        if file.how == "blocks":
            blocks, at = numbers[at : at + file.count], at + file.count
        else:
            blocks = np.arange(file.count, dtype=np.uint64)
        parts.append(Part(file, blocks, numbers[at : at + file.count]))
        at += file.count
    return parts


def images(disk: Disk, fd: int, part: Part) -> Iterator[tuple[Array, Array]]:
    """(block numbers, images uint8 [n, 4096]) of a part, a batch at a time, from the open record or from memory."""
    done = 0
    for kept in part.kept:
        yield part.blocks[done : done + len(kept)], kept
        done += len(kept)
    for first in range(done, part.file.count, BATCH_BLOCKS):
        blocks = part.blocks[first : first + BATCH_BLOCKS]
        data = disk.read(fd, part.file.image + first * BLOCK, blocks.size * BLOCK)
        if len(data) != blocks.size * BLOCK:
            raise OSError(f"the redo record ends inside the images of {part.file.name}")
        yield blocks, np.frombuffer(data, np.uint8).reshape(-1, BLOCK)


def verify_images(disk: Disk, redo: Redo) -> None:
    """Raise RedoRefused unless every image matches its hash."""
    with opened(disk, redo.path) as fd:
        for part in redo.parts:
            if part.file.how == "blocks":
                found = [block_hashes(data.reshape(-1)) for _, data in images(disk, fd, part)]
                if not np.array_equal(np.concatenate(found), part.hashes):
                    raise _damaged(redo.path, f"blocks for {part.file.name} are not what their hashes say")


def check_fits(path: str, head: RedoHead, layout: str) -> None:
    """Raise RedoRefused for the record of another model."""
    if head.layout != layout:
        raise RedoRefused(
            f"{path} belongs to another model (layout {head.layout}, this directory has {layout}); nothing was written",
            "move it away if the directory's files are the ones you want, or put its own files back",
        )
    for file in head.files:
        if Path(file.name).name != file.name or (
            file.how != "blocks" and file.count not in (0, block_count(file.size))
        ):
            raise _damaged(path, f"it makes no sense for {file.name!r}")


def _damaged(path: str, reason: str) -> RedoRefused:
    return RedoRefused(f"the redo record {path} is damaged: {reason}", "")


def _sum(data: bytes) -> bytes:
    return blake2b(data, digest_size=_SUM_BYTES).digest()
