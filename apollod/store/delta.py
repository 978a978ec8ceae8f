"""Undo deltas: the difference of two generations of weights, applied in either direction, a chunk of 16 MiB at a time.

    "APLDELT1"  u32 bytes of the head  head (JSON)
    chunks, tensor after tensor: u32 file, u64 offset, u32 bytes, u8 bytes of an element, u32 bytes packed, hash before,
    hash after
        then XOR of before and after, split into planes (first bytes of all elements, then second ones, ...), zstd;
        nothing if equal
    the same record with file 0xFFFFFFFF: bytes = number of chunks, hashes of all; BLAKE2b-128 of the head and all
    records

Planes, because a step of bf16 training changes low bytes a little and high bytes hardly ever. zstd level 1: on real
stochastically rounded steps, levels 3 and 4 give the same size and take up to 1.5 times as long
(benchmarks/checkpoint.py, docs/decisions/0011). A chunk's hash is BLAKE2b-128 of its block hashes.
"""

import struct
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import msgspec
import numpy as np
import zstandard

from apollod.errors import DeltaRefused, SyncError
from apollod.store.block_table import BLOCK, Array, BlockTable, block_count, block_hashes
from apollod.store.disk import REAL, Disk, opened
from apollod.store.model_files import StoredTensor, WeightFile, layout_digest
from apollod.store.pieces import Piece, Stream, Windows, as_bytes
from apollod.wire.manifest import ITEM_BYTES

CHUNK_BYTES = 16 << 20
LEVEL = 1
PACKERS = 2
GAP_BLOCKS = 7  # largest gap that is read along: one read of 32 KiB costs about as much as two of 4 KiB
_MAGIC = b"APLDELT1"
_RECORD = struct.Struct("<IQIBI16s16s")
_END = 0xFFFFFFFF
_HEAD_MAX = 1 << 20


class DeltaHead(msgspec.Struct, frozen=True):
    """`layout`: of the model; the steps of both sides, as given to `write_delta`."""

    schema_version: int
    layout: str
    step_before: int
    step_after: int


@dataclass(frozen=True)
class Delta:
    """Metadata of a delta. `before`, `after`: hash (32 hex digits) of all chunks of that side; `bytes`: size of the
    file."""

    head: DeltaHead
    before: str
    after: str
    bytes: int


@dataclass(frozen=True)
class _Chunk:
    file: int
    offset: int
    size: int
    item: int
    packed: int
    before: bytes
    after: bytes


def write_delta(
    path: Path,
    files: Sequence[WeightFile],
    before: Iterable[Piece],
    after: Iterable[Piece],
    steps: tuple[int, int],
    disk: Disk = REAL,
) -> Delta:
    """Write the difference of two generations, durably, whole or not at all. Raises SyncError for a full or broken
    disk."""
    temporary = f"{path}.tmp"
    head = DeltaHead(1, layout_digest(files), *steps)
    try:
        fd = disk.create(temporary)
        try:
            written = _fill(disk, fd, head, files, Stream(before), Stream(after))
            disk.fsync(fd)
        finally:
            disk.close(fd)
        disk.rename(temporary, str(path))
        disk.fsync_dir(str(path.parent))
    except BaseException as error:
        with suppress(OSError):
            disk.unlink(temporary)
        if isinstance(error, OSError):
            raise SyncError(
                f"the undo delta {path} cannot be written ({error})", "make room or mend the disk"
            ) from error
        raise
    return written


def read_delta(path: Path, disk: Disk = REAL) -> Delta:
    """Return head and hashes, with every record checked and no data unpacked. Raises DeltaRefused for a damaged
    file."""
    try:
        with opened(disk, str(path)) as fd:
            head, position, check = _read_head(disk, fd, path)
            count = 0
            while (chunk := _read_record(disk, fd, path, position, check)).file != _END:
                position, count = position + _RECORD.size + chunk.packed, count + 1
            position += _RECORD.size
            if chunk.size != count or disk.read(fd, position, 17) != check.digest():
                raise _damaged(path, "its checksum is wrong")
    except OSError as error:
        raise DeltaRefused(f"the undo delta {path} cannot be read ({error})", "use another checkpoint") from error
    return Delta(head, chunk.before.hex(), chunk.after.hex(), position + 16)


def apply_delta(
    path: Path, files: Sequence[WeightFile], weights: Iterable[Piece], disk: Disk = REAL
) -> Iterator[Piece]:
    """Yield the weights of the other side: `weights` may be those before or those after the delta.

    Every chunk is compared with its hash before and after the change. Raises DeltaRefused where the delta is damaged or
    of another model, or where `weights` are of neither side; the consumer of the pieces must not commit then.
    """
    return apply_deltas([path], files, weights, disk)


def apply_deltas(
    paths: Sequence[Path], files: Sequence[WeightFile], weights: Iterable[Piece], disk: Disk = REAL
) -> Iterator[Piece]:
    """Apply several deltas one after another, as `apply_delta`, with no more than a few chunks in memory."""
    stream = Stream(weights)
    deltas = [ChunkwiseDelta(path, files, disk) for path in paths]
    for chunk in chunks(files):
        data = stream.take(chunk.tensor.file, chunk.start, chunk.size)
        for delta in deltas:
            data = delta.apply(chunk, data)
        yield Piece(chunk.tensor.file, chunk.start, data)


class ChunkwiseDelta:
    """A delta that is applied to one chunk after another, to all of them in order. Raises DeltaRefused as
    `apply_delta`.

    Opens the file for each chunk: a path through a long history would hold more descriptors than a process may have.
    """

    def __init__(self, path: Path, files: Sequence[WeightFile], disk: Disk = REAL) -> None:
        self._path, self._disk = path, disk
        if read_delta(path, disk).head.layout != layout_digest(files):
            raise DeltaRefused(
                f"the undo delta {path} belongs to another model", "use a delta of this model's own history"
            )
        with self._opened() as fd:
            _, self._position, self._check = _read_head(disk, fd, path)
        self._forward: bool | None = None

    def apply(self, chunk: "Place", data: Array) -> Array:
        """Return the other side of the next chunk."""
        with self._opened() as fd:
            record = _read_record(self._disk, fd, self._path, self._position, self._check)
            packed = self._disk.read(fd, self._position + _RECORD.size, record.packed)
        if (record.file, record.offset, record.size) != (chunk.file, chunk.start, chunk.size):
            raise _damaged(self._path, f"its chunks do not follow the tensors at {chunk.tensor.name}")
        found = chunk_hash(data)
        if self._forward is None and record.packed:
            self._forward = found == record.before
        if found != (record.after if self._forward is False else record.before):
            raise DeltaRefused(
                f"{chunk.tensor.name} is neither what it was before the delta {self._path} nor after it",
                "use a checkpoint and replay the steps since",
            )
        if record.packed:
            data = data ^ _unpack(packed, record, self._path)
            if chunk_hash(data) != (record.after if self._forward else record.before):
                raise _damaged(self._path, f"it does not give the recorded bytes of {chunk.tensor.name}")
        self._position += _RECORD.size + record.packed
        return data

    @contextmanager
    def _opened(self) -> Iterator[int]:
        try:
            with opened(self._disk, str(self._path)) as fd:
                yield fd
        except OSError as error:
            raise DeltaRefused(
                f"the undo delta {self._path} cannot be read ({error})", "use another checkpoint"
            ) from error


@dataclass(frozen=True)
class Place:
    """A chunk: part of a tensor, from byte `offset` of the tensor on. `file`: number of its file."""

    file: int
    tensor: StoredTensor
    offset: int
    size: int

    @property
    def start(self) -> int:
        """Offset in the file."""
        return self.tensor.start + self.offset


def chunks(files: Sequence[WeightFile]) -> Iterator[Place]:
    """All chunks in the order of the files."""
    for number, file in enumerate(files):
        for tensor in file.tensors:
            for offset in range(0, tensor.bytes, CHUNK_BYTES):
                yield Place(number, tensor, offset, min(CHUNK_BYTES, tensor.bytes - offset))


def chunk_hash(data: Array) -> bytes:
    """16 bytes that identify a chunk."""
    digest = blake2b(block_hashes(data).astype("<u8").tobytes(), digest_size=16)
    digest.update(data.size.to_bytes(8, "little"))
    return digest.digest()


def old_pieces(
    disk: Disk, directory: Path, files: Sequence[WeightFile], table: BlockTable, new: Iterable[Piece]
) -> Iterator[Piece]:
    """Yield the data of all files as the directory holds it, chunk by chunk. Where the block table says that nothing
    changes, the old bytes equal the new ones, and the file is not read.

    `new`: the future content, `table`: hashes of the current one (`block_table.current_table`). Raises SyncError where
    a file is shorter than the table says.
    """
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
    """Current content of the file in the place of `data`, from block `first` on."""
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


def _fill(disk: Disk, fd: int, head: DeltaHead, files: Sequence[WeightFile], before: Stream, after: Stream) -> Delta:
    text = msgspec.json.encode(head)
    start = _MAGIC + len(text).to_bytes(4, "little") + text
    disk.write(fd, 0, start)
    check, sides, position, count = (
        blake2b(start, digest_size=16),
        (blake2b(digest_size=16), blake2b(digest_size=16)),
        len(start),
        0,
    )
    for chunk, hashes, packed in _packed(files, before, after):
        item = ITEM_BYTES[chunk.tensor.dtype]
        record = _RECORD.pack(chunk.file, chunk.start, chunk.size, item, len(packed), *hashes)
        disk.write(fd, position, record + packed)
        check.update(record)
        for side, found in zip(sides, hashes, strict=True):
            side.update(found)
        position, count = position + len(record) + len(packed), count + 1
    end = _RECORD.pack(_END, 0, count, 0, 0, sides[0].digest(), sides[1].digest())
    check.update(end)
    disk.write(fd, position, end + check.digest())
    return Delta(head, sides[0].hexdigest(), sides[1].hexdigest(), position + len(end) + 16)


def _packed(
    files: Sequence[WeightFile], before: Stream, after: Stream
) -> Iterator[tuple["Place", tuple[bytes, bytes], bytes]]:
    """Every chunk with the hashes of both sides and its difference, in order; threads compress while the next ones are
    read."""
    waiting: deque[tuple[Place, tuple[bytes, bytes], Future[bytes] | None]] = deque()
    with ThreadPoolExecutor(PACKERS, thread_name_prefix="delta") as pool:
        for chunk in chunks(files):
            old, new = (side.take(chunk.tensor.file, chunk.start, chunk.size) for side in (before, after))
            hashes = chunk_hash(old), chunk_hash(new)
            differ = hashes[0] != hashes[1]
            waiting.append(
                (chunk, hashes, pool.submit(_pack, old ^ new, ITEM_BYTES[chunk.tensor.dtype]) if differ else None)
            )
            while len(waiting) > PACKERS:
                yield _done(waiting.popleft())
        while waiting:
            yield _done(waiting.popleft())


def _done(
    waiting: tuple["Place", tuple[bytes, bytes], "Future[bytes] | None"],
) -> tuple["Place", tuple[bytes, bytes], bytes]:
    chunk, hashes, packing = waiting
    return chunk, hashes, packing.result() if packing else b""


def _pack(difference: Array, item: int) -> bytes:
    return zstandard.ZstdCompressor(level=LEVEL).compress(_planes(difference, item).data)


def _planes(data: Array, item: int) -> Array:
    if item == 2:  # a quarter of the time of a transposed copy
        words = data.view("<u2")
        return np.concatenate([words.astype(np.uint8), (words >> 8).astype(np.uint8)])
    return np.ascontiguousarray(data.reshape(-1, item).T).reshape(-1)


def _joined(planes: Array) -> Array:
    """Join elements from their planes, uint8 [item, n]. Whole words for two bytes (2 ms for 16 MiB), else plane by
    plane: a transposed copy takes 41 ms, most of the cost of applying a delta."""
    if len(planes) == 2:
        words: Array = planes[1].astype("<u2")
        words <<= 8
        words |= planes[0]
        return as_bytes(words)
    elements = np.empty(planes.T.shape, np.uint8)
    for place, plane in enumerate(planes):
        elements[:, place] = plane
    return elements.reshape(-1)


def _unpack(packed: bytes, chunk: _Chunk, path: Path) -> Array:
    try:
        if (size := zstandard.frame_content_size(packed)) != chunk.size:  # before memory is allocated
            raise _damaged(path, f"a chunk of {chunk.size} bytes unpacks to {size}")
        planes = np.frombuffer(zstandard.ZstdDecompressor().decompress(packed), np.uint8)
    except zstandard.ZstdError as error:
        raise _damaged(path, str(error)) from error
    return _joined(planes.reshape(chunk.item, -1))


def _read_head(disk: Disk, fd: int, path: Path) -> tuple[DeltaHead, int, "blake2b"]:
    """(head, offset of the first record, the checksum so far)."""
    start = disk.read(fd, 0, 12)
    length = int.from_bytes(start[8:], "little")
    if start[:8] != _MAGIC or length > _HEAD_MAX:
        raise _damaged(path, "it does not begin as one")
    text = disk.read(fd, 12, length)
    try:
        head = msgspec.json.decode(text, type=DeltaHead)
    except msgspec.MsgspecError as error:
        raise _damaged(path, str(error)) from error
    return head, 12 + length, blake2b(start + text, digest_size=16)


def _read_record(disk: Disk, fd: int, path: Path, position: int, check: "blake2b") -> _Chunk:
    data = disk.read(fd, position, _RECORD.size)
    if len(data) != _RECORD.size:
        raise _damaged(path, "it is cut short")
    check.update(data)
    chunk = _Chunk(*_RECORD.unpack(data))
    if chunk.file != _END and (chunk.size > CHUNK_BYTES or not chunk.item or chunk.size % chunk.item):
        raise _damaged(path, f"a chunk of {chunk.size} bytes with elements of {chunk.item}")
    return chunk


def _damaged(path: Path, reason: str) -> DeltaRefused:
    return DeltaRefused(
        f"the undo delta {path} is damaged: {reason}", "use another checkpoint, and replay the steps since"
    )
