"""Streams of weights: assigns bytes to tensors, and computes their fingerprint in passing."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from apollod.errors import CheckpointError
from apollod.store.block_hash import Array
from apollod.store.model_files import StoredTensor, WeightFile
from apollod.store.pieces import WINDOW_BYTES, Piece, as_bytes
from apollod.trainer.bind import live_fingerprint


def located(files: Sequence[WeightFile], pieces: Iterable[Piece]) -> Iterator[tuple[StoredTensor, int, Array]]:
    """(tensor, offset in it, uint8 bytes) of pieces that bring all data of `files` in order; raises CheckpointError if
    they do not."""
    places = iter([tensor for file in files for tensor in file.tensors if tensor.bytes])
    tensor, at = next(places, None), 0
    for piece in pieces:
        data, start = as_bytes(piece.data), piece.offset
        while data.size:
            if tensor is None or (piece.file, start) != (tensor.file, tensor.start + at):
                due = "nothing" if tensor is None else f"{tensor.file} from byte {tensor.start + at} on"
                raise CheckpointError(f"{piece.file} from byte {start} on came where {due} was due", "report this")
            part, data = data[: tensor.bytes - at], data[tensor.bytes - at :]
            yield tensor, at, part
            at, start = at + part.size, start + part.size
            if at == tensor.bytes:
                tensor, at = next(places, None), 0
    if tensor is not None:
        raise CheckpointError(
            f"nothing came where {tensor.file} from byte {tensor.start + at} on was due", "report this"
        )


class FingerprintStream:
    """The fingerprint of a stream of weights, by the compiled sums."""

    def __init__(self, files: Sequence[WeightFile]) -> None:
        self._files = files
        self._total = 0
        self._window = np.empty(WINDOW_BYTES, np.uint8)

    def watch(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """The same pieces. Each belongs to one tensor, and consists of whole words except a tensor's last."""
        for tensor, offset, data in located(self._files, pieces):
            self._total += sum(
                live_fingerprint.combine(tensor.name, live_fingerprint.part_fingerprint(offset + at, part))
                for at, part in self._words(data)
            )
            yield Piece(tensor.file, tensor.start + offset, data)

    def _words(self, data: Array) -> Iterator[tuple[int, Array]]:
        """(offset, bytes) in a form for compiled code: writable memory on a word's boundary."""
        if data.flags.writeable and data.ctypes.data % 4 == 0:
            yield 0, data
            return
        for at in range(0, data.size, WINDOW_BYTES):
            part = data[at : at + WINDOW_BYTES]
            np.copyto(self._window[: part.size], part)
            yield at, self._window[: part.size]

    def text(self) -> str:
        """16 hex digits; complete once all pieces have passed."""
        return live_fingerprint.format(self._total % (1 << 64))


def fingerprint_of(files: Sequence[WeightFile], pieces: Iterable[Piece]) -> str:
    """The fingerprint of weights from pieces."""
    stream = FingerprintStream(files)
    for _ in stream.watch(pieces):
        pass
    return stream.text()
