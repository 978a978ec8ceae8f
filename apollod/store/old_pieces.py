"""The weights that a model directory holds, told from those that it is about to hold: where the block table says that
nothing changes, the new bytes are the old ones, and the file is not read."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from apollod.errors import SyncError
from apollod.store.block_hash import BLOCK, Array, block_count, block_hashes
from apollod.store.block_table import BlockTable
from apollod.store.delta import chunks
from apollod.store.disk import Disk, opened
from apollod.store.model_files import WeightFile
from apollod.store.pieces import Piece, Stream, Windows

GAP_BLOCKS = 7  # read with what lies on both sides: 32 KiB at once cost about what two calls for 4 KiB do


def old_pieces(
    disk: Disk, directory: Path, files: Sequence[WeightFile], table: BlockTable, new: Iterable[Piece]
) -> Iterator[Piece]:
    """The data of all files as the directory holds it, chunk by chunk; `new`: what it will hold, `table`: hashes of
    what it holds (`block_table.current_table`). Raises SyncError where a file is shorter than the table says."""
    stream = Stream(_windows(disk, directory, files, table, new))
    for chunk in chunks(files):
        yield Piece(chunk.tensor.file, chunk.start, stream.take(chunk.tensor.file, chunk.start, chunk.size))


def _windows(
    disk: Disk, directory: Path, files: Sequence[WeightFile], table: BlockTable, new: Iterable[Piece]
) -> Iterator[Piece]:
    windows = Windows(new)
    for file in files:
        path, hashes = str(directory / file.name), table.files[file.name].hashes
        with opened(disk, path) as fd:
            for first, data in windows.of(file):
                old = _old(disk, fd, path, first, data, hashes[first : first + block_count(data.size)])
                header = max(0, len(file.header) - first * BLOCK)
                yield Piece(file.name, first * BLOCK + header, old[header:])
    windows.end()


def _old(disk: Disk, fd: int, path: str, first: int, data: Array, hashes: Array) -> Array:
    """What the file holds where `data` is to be, from block `first` on."""
    changed = np.flatnonzero(block_hashes(data) != hashes)
    if not changed.size:
        return data
    old = data.copy()
    for run in np.split(changed, np.flatnonzero(np.diff(changed) > GAP_BLOCKS + 1) + 1):
        start, stop = int(run[0]) * BLOCK, min((int(run[-1]) + 1) * BLOCK, data.size)
        found = disk.read(fd, first * BLOCK + start, stop - start)
        if len(found) != stop - start:
            raise SyncError(f"{path} ends inside the weights", "copy the model again; nothing was written")
        old[start:stop] = np.frombuffer(found, np.uint8)
    return old
