"""Decides how a sync updates one weight file while its new bytes pass by: at most 192 MiB are held, for all files
together.

The file itself is not changed here. Changed blocks go to the redo record, or, where that would cost more, a whole new
file is written beside; a file with a second hard link always gets a new one, because the link may be a user's untrained
model.
"""

import mmap
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from apollod.store.appending import Appender
from apollod.store.block_table import BLOCK, Array, FileBlocks, block_count, block_hashes
from apollod.store.disk import Disk, opened
from apollod.store.redo import NEW, How, Part, RedoFile, RedoWriter

DENSE_SHARE = 0.15
"""Share of changed blocks above which a new file costs less than writing them twice (benchmarks/checkpoint.py)."""

EARLY_SHARE = 0.9
"""Fraction of DENSE_SHARE: below that, images go to the redo record while the next bytes are hashed."""

EARLY_BYTES = 1 << 20
HELD_BYTES = 64 << 20
KEPT_BYTES = 128 << 20
_COPY_BYTES = 16 << 20


class Room:
    """Memory for the first images of a sync, KEPT_BYTES for all files together: they are written from here to the redo
    record, then in place.

    Uses huge pages where the system has them: clearing small ones takes three times as long as copying the images
    there.
    """

    def __init__(self) -> None:
        self._rows: Array | None = None
        self._used = 0
        self.full = False
        """True since an image did not fit: later images must not be kept, because kept images have to be the first
        ones."""

    @property
    def mark(self) -> int:
        """Position to pass to `back`."""
        return self._used

    def back(self, mark: int) -> None:
        """Release everything taken since the mark; the disk must not need it either."""
        self._used, self.full = mark, False

    def take(self, count: int) -> Array:
        """Place for images, uint8 [count, 4096]; in other memory once the room is full."""
        if self._rows is None:
            memory = mmap.mmap(-1, KEPT_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            with suppress(OSError):
                memory.madvise(mmap.MADV_HUGEPAGE)
            self._rows = np.frombuffer(memory, np.uint8).reshape(-1, BLOCK)
        self.full = self.full or self._used + count > len(self._rows)
        if self.full:
            return np.empty((count, BLOCK), np.uint8)
        self._used += count
        return self._rows[self._used - count : self._used]

    def holds(self, images: Array) -> bool:
        """True if these images lie here."""
        return self._rows is not None and np.may_share_memory(images, self._rows)

    def last(self, count: int) -> Array:
        """The last `count` images taken, as one array."""
        assert self._rows is not None
        return self._rows[self._used - count : self._used]


class Target:
    """Common target of one sync's updates. `clones`: True if the file system shares blocks; None before the first
    try."""

    def __init__(self, disk: Disk, directory: Path, redo: RedoWriter) -> None:
        self.disk, self.directory, self.redo = disk, directory, redo
        self.clones: bool | None = None
        self.room = Room()


class FileUpdate:
    """Update of one file: `take` its windows in order, then `finish`."""

    def __init__(self, target: Target, known: FileBlocks) -> None:
        self._to, self._known = target, known
        self._path = str(target.directory / known.name)
        self._new = str(target.directory / f"{NEW}{known.name}")
        self._hashes = np.empty_like(known.hashes)
        self._how: How = "unchanged"
        self._fd = -1
        self._out: Appender | None = None
        self._image, self._mark = target.redo.end, target.room.mark
        self._blocks: list[Array] = []
        self._held: list[Array] = []
        """Images that are not yet in the redo record: those of the last of `_blocks`."""
        self._kept: list[Array] = []
        """Images that are both in the redo record and in memory: those of the first of `_blocks`."""
        self.changed = 0
        self.written = 0
        """Bytes written to a new file."""

    def take(self, first: int, data: Array) -> None:
        """Process the bytes from block `first` on."""
        hashes = block_hashes(data)
        self._hashes[first : first + hashes.size] = hashes
        changed = np.flatnonzero(hashes != self._known.hashes[first : first + hashes.size])
        self.changed += changed.size
        if changed.size and self._how == "unchanged":
            self._begin(first)
        if self._how == "blocks" and changed.size and self._is_dense(first + hashes.size, changed.size):
            self._rewrite(first)
        if self._how == "rewrite":
            self._put(first * BLOCK, data)
        elif self._how == "reflink":
            for start, stop in runs(changed):
                low, high = int(changed[start]) * BLOCK, (int(changed[stop - 1]) + 1) * BLOCK
                self._put(first * BLOCK + low, data[low:high])
        elif changed.size:
            self._hold(first, changed, data)

    def finish(self) -> Part:
        """Flush a new file; return the file's part of the redo record."""
        if self._how == "blocks" and self.changed > DENSE_SHARE * self._hashes.size:
            self._rewrite(self._hashes.size)
        blocks, hashes = np.empty(0, np.uint64), np.empty(0, np.uint64)
        if self._how == "blocks":
            self._spill()
            blocks = np.concatenate(self._blocks).astype(np.uint64)
            hashes = self._hashes[blocks]
        elif self._how != "unchanged":
            if self._out is not None:
                self._out.drain()
            self._to.disk.fsync(self._fd)
            self.close()
            blocks, hashes = np.arange(self._hashes.size, dtype=np.uint64), self._hashes
        return Part(
            RedoFile(self._known.name, self._how, self._known.size, self._image, hashes.size),
            blocks,
            hashes,
            tuple(self._kept),
        )

    def close(self) -> None:
        """Close the new file."""
        if self._out is not None:
            self._out.abandon()
            self._out = None
        if self._fd >= 0:
            self._to.disk.close(self._fd)
            self._fd = -1

    # --- the choice -----------------------------------------------------------------------------------------------

    def _begin(self, first: int) -> None:
        """Choose the method, at the first changed block."""
        disk = self._to.disk
        if self._to.clones is not False:
            self._fd = disk.create(self._new, self._path)
            with opened(disk, self._path) as old:
                self._to.clones = disk.clone(old, self._fd)
            if self._to.clones:
                self._how = "reflink"
                return
            self.close()
            disk.unlink(self._new)
        info = disk.stat(self._path)
        if info is None or info.links > 1:
            self._rewrite(first)
        else:
            self._how = "blocks"

    def _is_dense(self, seen: int, more: int) -> bool:
        """True if too many blocks changed: more than DENSE_SHARE of the file, or of the seen part before the held limit
        is passed."""
        held = self._held_bytes() + more * BLOCK > HELD_BYTES
        return self.changed > DENSE_SHARE * self._hashes.size or (held and self.changed > DENSE_SHARE * seen)

    # --- blocks in place ------------------------------------------------------------------------------------------

    def _hold(self, first: int, changed: Array, data: Array) -> None:
        if self._held_bytes() + changed.size * BLOCK > HELD_BYTES:
            self._spill()
        images = self._to.room.take(changed.size)
        _gather(changed, data, images)
        self._blocks.append(changed + first)
        self._held.append(images)
        if len(self._held) > 1 and not self._to.room.full:  # they are adjacent: one write instead of many small ones
            self._held = [self._to.room.last(sum(len(part) for part in self._held))]
            self._blocks[-2:] = [np.concatenate(self._blocks[-2:])]
        if self._held_bytes() >= EARLY_BYTES and self.changed <= EARLY_SHARE * DENSE_SHARE * (
            first + block_count(data.size)
        ):
            self._spill()

    def _held_bytes(self) -> int:
        return sum(part.size for part in self._held)

    def _spill(self) -> None:
        """Write held images to the redo record; those in the room also stay in memory, so that they need not be read
        back."""
        for part in self._held:
            lasting = self._to.room.holds(part)
            self._to.redo.add(part, lasting)
            self._kept += [part] if lasting else []
        self._held = []

    # --- a new file -----------------------------------------------------------------------------------------------

    def _rewrite(self, seen: int) -> None:
        """Begin a new file with everything up to block `seen`: changed blocks from here, the others from the old
        file."""
        self._how = "rewrite"
        self._fd = self._to.disk.create(self._new, self._path)
        self._out = Appender(self._to.disk, self._fd)
        at = 0
        for blocks, images in self._images_so_far():
            flat = images.reshape(-1)
            for start, stop in runs(blocks):
                first = int(blocks[start])
                self._copy_old(at, first)
                self._put(first * BLOCK, flat[start * BLOCK : stop * BLOCK][: self._known.size - first * BLOCK])
                at = first + stop - start
        self._copy_old(at, seen)
        self._to.room.back(self._mark)  # the record was read back, or never written: no write uses it
        self._blocks, self._held, self._kept = [], [], []

    def _images_so_far(self) -> Iterator[tuple[Array, Array]]:
        """(block numbers, images), first those that are already in the redo record."""
        offset = self._image
        spilled = len(self._blocks) - len(self._held)
        for blocks in self._blocks[:spilled]:
            yield blocks, self._to.redo.read(offset, blocks.size)
            offset += blocks.size * BLOCK
        yield from zip(self._blocks[spilled:], self._held, strict=True)

    def _copy_old(self, first: int, end: int) -> None:
        with opened(self._to.disk, self._path) as old:
            last = min(end * BLOCK, self._known.size)
            for offset in range(first * BLOCK, last, _COPY_BYTES):
                self._put(
                    offset, np.frombuffer(self._to.disk.read(old, offset, min(_COPY_BYTES, last - offset)), np.uint8)
                )

    def _put(self, offset: int, data: Array) -> None:
        if self._out is not None:
            self._out.add(data)
        else:
            self._to.disk.write(self._fd, offset, data)
        self.written += data.size


def runs(blocks: Array) -> list[tuple[int, int]]:
    """Index ranges (start, stop) of consecutive numbers in an ascending array."""
    if not blocks.size:
        return []
    breaks = (np.flatnonzero(np.diff(blocks) != 1) + 1).tolist()
    return list(zip([0, *breaks], [*breaks, blocks.size], strict=True))


def _gather(changed: Array, data: Array, images: Array) -> None:
    """Copy the changed blocks of a window into uint8 [n, 4096]; a short last one is zero-padded."""
    whole = data.size // BLOCK
    count = int(np.searchsorted(changed, whole))
    if count:  # "clip" spares a copy
        np.take(data[: whole * BLOCK].reshape(-1, BLOCK), changed[:count], axis=0, out=images[:count], mode="clip")
    if count < changed.size:
        images[-1] = 0
        images[-1, : data.size - whole * BLOCK] = data[whole * BLOCK :]


def discard(disk: Disk, directory: Path, names: list[str]) -> None:
    """Remove files of an abandoned sync; the next recovery removes those that cannot be removed now."""
    for name in names:
        with suppress(OSError):
            disk.unlink(str(directory / name))
