"""Fingerprint of weights in memory: a 64-bit number that identifies them exactly, wherever they are (docs/design.md,
section 8). Of tensors in host memory, on a device, and of a stream of weights in passing.

For a tensor with bytes (C order, zero-padded to 4) read as little-endian uint32 words w_j, all modulo 2^64:

    f = sum_j w_j * (2j + 1) * K  =  K * (2 * S1 + S0),    S0 = sum_j w_j,  S1 = sum_j j * w_j
    F = sum over the tensors of a checkpoint of f * (1 | the first 8 bytes, little-endian, of BLAKE2b-256(name))

Integer sums do not depend on order, device or threads. Not a cryptographic hash: it finds accidents, not forgeries.
Files: apollod/store/fingerprint.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from apollod.errors import CheckpointError
from apollod.store.block_table import Array
from apollod.store.fingerprint import share, sums
from apollod.store.model_files import StoredTensor, WeightFile
from apollod.store.pieces import WINDOW_BYTES, Piece, as_bytes
from apollod.trainer.kernels.passes import compiled_passes

_K = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_NOTHING = np.empty(0, np.uint8)


def tensor_fingerprint(tensor: Tensor, dtype: torch.dtype | None = None) -> int:
    """f of a tensor of any shape, dtype and device. `dtype`: that of the checkpoint, if memory holds a wider one."""
    plain = tensor.is_cpu and dtype in (None, tensor.dtype) and tensor.is_contiguous() and not tensor.nbytes % 4
    if plain and (compiled := compiled_passes()) is not None:
        s0, s1 = compiled.fingerprint_sums_at(tensor.data_ptr(), tensor.nbytes // 4)  # a step asks for many small ones
        return _finish(int(s0), int(s1), tensor.nbytes, _NOTHING)
    if tensor.is_cuda:
        return DeviceFingerprint([Share(tensor, dtype or tensor.dtype, _K)], on_triton()).queue()()
    flat = tensor.detach().to(dtype=dtype or tensor.dtype).contiguous().view(-1).view(torch.uint8)
    return bytes_fingerprint(flat.cpu().numpy())


def bytes_fingerprint(data: Array) -> int:
    """f of a contiguous uint8 array."""
    whole = data.size // 4 * 4
    return _finish(*_sums(data[:whole].view("<u4")), whole, data[whole:])


def part_fingerprint(offset: int, data: Array) -> int:
    """The part of a tensor's f from contiguous uint8 bytes that begin at `offset`, a multiple of 4."""
    whole = data.size // 4 * 4
    s0, s1 = _sums(data[:whole].view("<u4"))
    return _finish(s0, s1 + offset // 4 * s0, whole, data[whole:], offset // 4)


def _finish(s0: int, s1: int, whole: int, rest: Array, first: int = 0) -> int:
    """f from the sums over `whole` bytes, which begin at word `first`, and the up to three bytes after them."""
    tail = int.from_bytes(rest.tobytes(), "little")
    return _K * (2 * (s1 + (first + whole // 4) * tail) + s0 + tail) & _MASK


def _sums(words: Array) -> tuple[int, int]:
    """(S0, S1) of uint32 words."""
    if (compiled := compiled_passes()) is not None:
        s0, s1 = compiled.fingerprint_sums(words)
        return int(s0), int(s1)
    return sums(words)


def factor(name: str) -> int:
    """The factor of 2 S1 + S0 of tensor `name` in the model's sum, modulo 2^64."""
    return share(name, _K) & _MASK


def combine(name: str, fingerprint: int) -> int:
    """The contribution of tensor `name` with fingerprint f to the model's sum."""
    return share(name, fingerprint) & _MASK


def model_fingerprint(items: Iterable[tuple[str, int]]) -> int:
    """F from (checkpoint name, tensor fingerprint) pairs, in any order; a tied tensor once, under its stored name."""
    return sum(combine(name, fingerprint) for name, fingerprint in items) & _MASK


def format(fingerprint: int) -> str:
    """The fingerprint as 16 hex digits."""
    return f"{fingerprint:016x}"


# --- in device memory: summed on the device, with one number read back ------------------------------------------------
#
# Modulo 2^64 a fingerprint is linear in the words of all tensors:
#
#     F = sum over tensors of factor * sum_j w_j (2j + 1)        factor = K * weight of the tensor's name
#
# so that one launch over all of them gives it. Triton's kernel reads memory that has the checkpoint's form; small
# tensors in another dtype or at unaligned addresses are first copied into that form; everything else, and all without
# Triton, is summed by torch, in blocks.

_triton: bool | None = None
"""use Triton for sums on a GPU; None: if it is installed"""


def use_triton(wanted: bool) -> None:
    """Choose Triton or torch (in several passes) for sums on a GPU. The sums are the same."""
    global _triton
    _triton = wanted


def on_triton() -> bool:
    """True if sums on a GPU use Triton."""
    return find_spec("triton") is not None if _triton is None else _triton


STAGED_BYTES = 1 << 20
"""most bytes of a tensor for which a copy in the checkpoint's form is kept"""

BLOCK_WORDS = 1 << 22  # of torch's sums: bounds their temporaries

_ALIGNED = 16


@dataclass(frozen=True)
class Share:
    """A tensor, its dtype in the checkpoint, which memory may hold in a wider one, and its factor modulo 2^64."""

    tensor: Tensor
    dtype: torch.dtype
    factor: int

    @property
    def ready(self) -> bool:
        """True if its memory has the form on which the sum is defined."""
        held = self.tensor
        whole = held.dtype == self.dtype and held.is_contiguous() and held.nbytes % 4 == 0
        return whole and held.data_ptr() % _ALIGNED == 0

    @property
    def bytes(self) -> int:
        return prod(self.tensor.shape) * self.dtype.itemsize


class DeviceFingerprint:
    """The sum of shares of tensors on one device; the tensors must outlive it."""

    def __init__(self, shares: Iterable[Share], triton: bool) -> None:
        self._shares = [share for share in shares if share.tensor.numel()]
        kernel: Any = import_module("apollod.trainer.kernels.fingerprint_triton") if triton else None
        self._kernel = kernel
        self._copies: list[tuple[Tensor, Tensor]] = []  # (copy, tensor)
        self._table: Tensor | None = None
        if triton:
            direct = [(_words(share.tensor.detach()), share.factor) for share in self._shares if share.ready]
            staged = [share for share in self._shares if not share.ready and share.bytes <= STAGED_BYTES]
            self._shares = [share for share in self._shares if not share.ready and share.bytes > STAGED_BYTES]
            direct += [(self._stage(share), share.factor) for share in staged]
            if direct:
                self._table = kernel.segments(direct).to(direct[0][0].device)
                self._words = [words for words, _ in direct]  # the table has their addresses

    def _stage(self, share: Share) -> Tensor:
        """int32 words [n] that hold a copy of the tensor during a sum; the last one padded with zeros."""
        memory = torch.zeros(-(-share.bytes // 4), dtype=torch.int32, device=share.tensor.device)
        copy = memory.view(torch.uint8)[: share.bytes].view(share.dtype).view(share.tensor.shape)
        self._copies.append((copy, share.tensor.detach()))
        return memory

    def queue(self) -> Callable[[], int]:
        """Queue the sum over the tensors as the queued work will leave them. Does not wait; calling the result does."""
        found: list[Tensor] = []
        if self._copies:
            torch._foreach_copy_([copy for copy, _ in self._copies], [tensor for _, tensor in self._copies])
        if self._table is not None:
            found.append(self._kernel.queue_sum(self._table))
        found += [_torch_sum(share) for share in self._shares]
        if not found:
            return lambda: 0
        total = torch.stack(found).sum()
        here = torch.empty((), dtype=torch.int64, pin_memory=total.is_cuda)
        here.copy_(total, non_blocking=True)
        done = torch.cuda.current_stream(total.device).record_event() if total.is_cuda else None

        def answer() -> int:
            if done is not None:
                done.synchronize()
            return int(here) & _MASK

        return answer


def _words(contiguous: Tensor) -> Tensor:
    return contiguous.view(-1).view(torch.uint8).view(torch.int32)


def _torch_sum(share: Share) -> Tensor:
    """A tensor's part of the sum, int64 [] on the device, modulo 2^64."""
    flat = share.tensor.detach().contiguous().view(-1)
    total = torch.zeros((), dtype=torch.int64, device=flat.device)
    step = BLOCK_WORDS * 4 // share.dtype.itemsize
    for first in range(0, flat.numel(), step):
        part = flat[first : first + step].to(share.dtype).view(torch.uint8)
        if part.numel() % 4 or part.data_ptr() % 4:  # padded; a view may begin in the middle of a word
            part = torch.nn.functional.pad(part, (0, -part.numel() % 4)).clone()
        wide = part.view(torch.int32).to(torch.int64).bitwise_and_(0xFFFFFFFF)
        begin = 2 * (first * share.dtype.itemsize // 4) + 1
        total += wide.mul_(torch.arange(begin, begin + 2 * wide.numel(), 2, device=wide.device)).sum()
    return total.mul_((share.factor ^ 1 << 63) - (1 << 63))


# --- in a stream of weights -------------------------------------------------------------------------------------------


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
                combine(tensor.name, part_fingerprint(offset + at, part)) for at, part in self._words(data)
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
        return format(self._total & _MASK)


def fingerprint_of(files: Sequence[WeightFile], pieces: Iterable[Piece]) -> str:
    """The fingerprint of weights from pieces."""
    stream = FingerprintStream(files)
    for _ in stream.watch(pieces):
        pass
    return stream.text()
