"""Cuts a stream of weights (pieces of a file's data, in order) into windows of whole 4 KiB blocks, mostly without a
copy."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from apollod.errors import ModelRefused, SyncError
from apollod.store.block_table import BLOCK, Array
from apollod.store.disk import REAL, Buffer, Disk, opened
from apollod.store.model_files import StoredTensor, WeightFile, read_files

WINDOW_BYTES = 16 << 20  # a multiple of BLOCK; also the largest single read of a directory


class Piece(NamedTuple):
    """Bytes of a file from `offset` on. The data may change once the next piece is requested, not before."""

    file: str
    offset: int
    data: Buffer


class Windows:
    """The data of one file after another, as (first block, uint8 bytes) with the header in front.

    Every window but a file's last consists of whole blocks. `pieces` has to bring the data of the requested files, in
    their order, without gaps; else raises SyncError.
    """

    def __init__(self, pieces: Iterable[Piece]) -> None:
        self._pieces = iter(pieces)
        self._next: Piece | None = None

    def of(self, file: WeightFile) -> Iterator[tuple[int, Array]]:
        """Yield all windows of one file."""
        partial, filled, position = np.zeros(BLOCK, np.uint8), 0, 0
        for data in self._data(file):
            start = min(-filled % BLOCK if filled else 0, data.size)
            partial[filled : filled + start] = data[:start]
            if filled and filled + start == BLOCK:
                yield (position - filled) // BLOCK, partial
                partial, filled = np.zeros(BLOCK, np.uint8), 0
            elif filled:
                position, filled = position + start, filled + start
                continue
            end = start + (data.size - start) // BLOCK * BLOCK
            for at in range(start, end, WINDOW_BYTES):
                yield (position + at) // BLOCK, data[at : min(at + WINDOW_BYTES, end)]
            filled = data.size - end
            partial[:filled] = data[end:]
            position += data.size
        if filled:
            yield (position - filled) // BLOCK, partial[:filled]

    def end(self) -> None:
        """Raise SyncError where pieces are left."""
        if (piece := self._peek()) is not None:
            raise _bad(f"data for {piece.file} at byte {piece.offset} after the last file")

    def _data(self, file: WeightFile) -> Iterator[Array]:
        yield np.frombuffer(file.header, np.uint8)
        position = len(file.header)
        while position < file.bytes:
            piece = self._peek()
            if piece is None or (piece.file, piece.offset) != (file.name, position):
                came = "nothing" if piece is None else f"{piece.file} from byte {piece.offset} on"
                raise _bad(f"{came} came where {file.name} from byte {position} on was due")
            data = as_bytes(piece.data)
            if position + data.size > file.bytes:
                raise _bad(f"{data.size} bytes came at byte {position} of {file.name}, which has {file.bytes}")
            self._next = None
            position += data.size
            yield data

    def _peek(self) -> Piece | None:
        while self._next is None or not memoryview(self._next.data).nbytes:
            self._next = next(self._pieces, None)
            if self._next is None:
                return None
        return self._next


class Stream:
    """Pieces as one stream of bytes that is taken in portions of any size, in order."""

    def __init__(self, pieces: Iterable[Piece]) -> None:
        self._pieces = iter(pieces)
        self._file, self._offset, self._data = "", 0, np.empty(0, np.uint8)

    def take(self, file: str, offset: int, size: int) -> Array:
        """Return uint8 [size] of a file from `offset` on; SyncError where the stream does not continue there."""
        parts = []
        while size:
            while not self._data.size:
                piece = next(self._pieces, None)
                if piece is None:
                    raise _bad(f"nothing came where {file} from byte {offset} on was due")
                self._file, self._offset, self._data = piece.file, piece.offset, as_bytes(piece.data)
            if (self._file, self._offset) != (file, offset):
                raise _bad(f"{self._file} from byte {self._offset} on came where {file} from byte {offset} on was due")
            part, self._data = self._data[:size], self._data[size:]
            parts.append(part if part.size == size else part.copy())  # the next piece may reuse the memory of this one
            size, offset = size - part.size, offset + part.size
            self._offset = offset
        return parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.empty(0, np.uint8)


def as_bytes(data: Any) -> Array:
    """The same memory as uint8 [n]."""
    return data.reshape(-1).view(np.uint8) if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)


def directory_pieces(directory: Path, files: tuple[WeightFile, ...], disk: Disk = REAL) -> Iterator[Piece]:
    """Read the weights of another directory of the same model, in the layout of `files`; it may be sharded differently.

    Raises ModelRefused where it does not hold the same tensors, before the first piece.
    """
    origin = {tensor.name: tensor for file in read_files(directory, disk) for tensor in file.tensors}
    for tensor in (tensor for file in files for tensor in file.tensors):
        _match(directory, tensor, origin.pop(tensor.name, None))
    if origin:
        raise ModelRefused(
            f"{directory} holds {next(iter(origin))}, which this model does not", "give a directory of the same model"
        )
    return _read_pieces(directory, files, disk)


def _read_pieces(directory: Path, files: tuple[WeightFile, ...], disk: Disk) -> Iterator[Piece]:
    origin = {tensor.name: tensor for file in read_files(directory, disk) for tensor in file.tensors}
    for tensor in (tensor for file in files for tensor in file.tensors):
        source = origin[tensor.name]
        path = str(directory / source.file)
        with opened(disk, path) as fd:
            for at in range(0, tensor.bytes, WINDOW_BYTES):
                count = min(WINDOW_BYTES, tensor.bytes - at)
                data = disk.read(fd, source.start + at, count)
                if len(data) != count:
                    raise ModelRefused(f"{path} ends inside {tensor.name}", "copy it again")
                yield Piece(tensor.file, tensor.start + at, data)


def _match(directory: Path, here: StoredTensor, there: StoredTensor | None) -> None:
    if there is None or (there.dtype, there.shape) != (here.dtype, here.shape):
        found = "missing" if there is None else f"{there.dtype} {list(there.shape)}"
        raise ModelRefused(
            f"{here.name} is {found} in {directory}, and {here.dtype} {list(here.shape)} in the model directory",
            "give a directory of the same model",
        )


def _bad(what: str) -> SyncError:
    return SyncError(f"the new weights do not fit the files: {what}", "report this; nothing was written")
