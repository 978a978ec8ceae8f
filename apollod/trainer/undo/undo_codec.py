"""Undo data of one write: `Packed`, made of the bytes before and after, small and fast.

Numbers are compared as integers, so that every bit comes back: NaN with their payloads, both zeros, everything. 16-bit
floats:

    2 bits an element: 0 the same, 1 one up, 2 one down, 3 any other change; the old values of those in a list, in order
    blocks of 512 elements, of which those without a change take a byte. Code word k of a block holds elements k, 64 +
    k, ...

float32 that holds values of bfloat16 (`cast` views) is packed by its upper halves, other float32 as differences of 16
bits with the old values where those do not fit; and if that is not smaller, the old values are kept as they are. On
CPU in kernels of one thread; elsewhere, and without numba, in torch operations.
"""

from __future__ import annotations

import ctypes
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from apollod.trainer.kernels.passes import UNDO_BLOCK as BLOCK
from apollod.trainer.kernels.passes import UNDO_LANES as LANES
from apollod.trainer.undo.way_back import Packed, Sent, TorchPacked

Array = np.ndarray[Any, Any]
i16, u8, u16, u32, u64 = np.int16, np.uint8, np.uint16, np.uint32, np.uint64

PACKED_MIN = 1024  # elements; fewer are kept as they are
ESCAPES_MAX = 0.5  # share of escaped elements above which packing does not pay
ROOM_KEPT_BYTES = 1 << 20  # largest packing buffer kept for reuse: that of a working block


@cache
def kernels() -> ModuleType | None:
    """undo_kernels.py; None without numba, which is only imported when needed."""
    module = import_module("apollod.trainer.kernels.undo_kernels")
    return module if module.AVAILABLE else None


def _compiled() -> ModuleType:
    module = kernels()
    assert module is not None
    return module


def copied(values: Tensor, maybe_zero: bool = True) -> Packed:
    """Undo data for `values` that will change as a whole: a copy in host memory, or, if `maybe_zero`, the fact that
    they are zero."""
    if not values.is_cpu:
        return Sent(values.view(-1).clone())
    if maybe_zero:
        bits = values.view(-1).view(torch.uint8)  # as numbers, -0.0 would be zero
        if not bits[:64].any() and not bits.any():
            return _Zeros()
    return Raw(values)


def packable(values: Tensor) -> bool:
    """True if `packed` would compare old and new; if not, a copy of the old values is as good and can be made before
    the write."""
    return not values.is_cpu or (values.numel() >= PACKED_MIN and values.element_size() in (2, 4))


def least_bytes(values: Tensor) -> int:
    """Least size of the undo data of a write to all of `values`, whatever is written."""
    if not packable(values):
        return values.nbytes
    if values.is_cpu:
        return values.numel() // BLOCK
    return -(-values.numel() // 4) if values.element_size() == 2 else values.nbytes


def packed(old: Tensor, new: Tensor) -> Packed:
    """Undo data for values that changed from `old` to `new`: flat, contiguous, of one dtype and device. `old` is not
    kept, except on a GPU."""
    if old.is_cpu:
        return _packed_here(old, new)
    return TorchPacked(old, new, deferred=True) if old.element_size() == 2 else Sent(old)


def _packed_here(old: Tensor, new: Tensor) -> Packed:
    if packable(old):
        if kernels() is None:
            made: Packed | None = TorchPacked(old, new) if old.element_size() == 2 else None
        elif old.element_size() == 2:
            made = HalfPacked.at(old.data_ptr(), new.data_ptr(), old.numel())
        elif _on_bf16_grid(before := words(old), after := words(new)):
            made = _UpperHalves.of(before, after)
        else:
            made = FloatPacked.of(before, after)
        if made is not None:
            return made
    return copied(old)


def words(values: Tensor) -> Array:
    """A flat CPU tensor of 2 or 4 bytes an element as unsigned integers, on the same memory."""
    if values.element_size() == 2:
        return values.view(torch.int16).numpy().view(u16)
    return values.view(torch.int32).numpy().view(u32)


def _on_bf16_grid(before: Array, after: Array) -> bool:
    return not any((part & u32(0xFFFF)).any() for part in (before[:BLOCK], after[:BLOCK], before, after))


class _Zeros(Packed):
    """Everything was zero: moments and master copies before a parameter's first update."""

    nbytes = 0

    def restore(self, values: Tensor) -> None:
        values.zero_()


class Raw(Packed):
    """The old values themselves, on CPU. Copied as bytes: torch takes ten times as long for a small tensor."""

    def __init__(self, old: Tensor) -> None:
        self._old = ctypes.string_at(old.data_ptr(), old.nbytes)

    def restore(self, values: Tensor) -> None:
        assert values.nbytes == len(self._old)
        ctypes.memmove(values.data_ptr(), self._old, len(self._old))

    @property
    def nbytes(self) -> int:
        return len(self._old)


# --- CPU ----------------------------------------------------------------------------------------------------------


class HalfPacked(Packed):
    """16 bits an element: codes of the changed blocks, then the values without a code, concatenated in `data`."""

    def __init__(self, data: Array, blocks: int, kept: int) -> None:
        self._data, self._blocks, self._kept = data, blocks, kept

    @classmethod
    def of(cls, old: Array, new: Array) -> HalfPacked | None:
        """Like `at`, for contiguous uint16."""
        return cls.at(old.ctypes.data, new.ctypes.data, old.size)

    @classmethod
    def at(cls, old: int, new: int, size: int) -> HalfPacked | None:
        """Undo data of values at these addresses; None if too many changed by more than one."""
        blocks, most = -(-size // BLOCK), int(size * ESCAPES_MAX) + BLOCK
        room, address = _room(blocks * (1 + 2 * LANES) + 2 * most + 16)
        codes, escapes = _parts(blocks, blocks)
        kept, count = _compiled().pack_at(old, new, size, address, address + codes, address + escapes, most)
        if count < 0:
            return None
        _, end = _parts(blocks, kept)
        data = np.empty(end + 2 * count, u8)
        data[:end], data[end:] = room[:end], room[escapes : escapes + 2 * count]
        return cls(data, blocks, kept)

    @property
    def nbytes(self) -> int:
        return self._data.size

    @property
    def escapes(self) -> Array:
        """The values without a code: uint16 [n]."""
        return self._data[_parts(self._blocks, self._kept)[1] :].view(u16)

    def restore(self, values: Tensor) -> None:
        self.restore_words(words(values))

    def restore_words(self, values: Array) -> None:
        """Like `restore`, for uint16."""
        whole, (first, end) = values.size // BLOCK, _parts(self._blocks, self._kept)
        flags, codes = self._data[: self._blocks], self._data[first:end].view(u64).reshape(-1, LANES // 4)
        way = codes, codes.view(u16), self.escapes
        place = _compiled().unpack_halves(_blocks(values), flags[:whole], *way, 0, 0)
        if whole < self._blocks:
            rest = _padded(values)
            _compiled().unpack_halves(rest, flags[whole:], *way, *place)
            values[whole * BLOCK :] = rest[0, : values.size % BLOCK]


def _parts(blocks: int, kept: int) -> tuple[int, int]:
    """Offsets of codes and escapes: codes at whole words behind one flag per block, escapes behind the codes of `kept`
    blocks."""
    codes = -(-blocks // 8) * 8
    return codes, codes + kept * 2 * LANES


_kept_room: tuple[Array, int] = (np.empty(0, u8), 0)


def _room(size: int) -> tuple[Array, int]:
    """A packing buffer and its address, valid until the next call: allocating it would cost more than the packing."""
    global _kept_room
    if _kept_room[0].size >= size:
        return _kept_room
    room = np.empty(size, u8)
    made = room, room.ctypes.data
    if size <= ROOM_KEPT_BYTES:
        _kept_room = made
    return made


def _blocks(values: Array) -> Array:
    """Whole blocks [b, BLOCK], on the same memory."""
    return values[: values.size // BLOCK * BLOCK].reshape(-1, BLOCK)


def _padded(values: Array) -> Array:
    """The elements behind the whole blocks, as one more block."""
    block = np.zeros((1, BLOCK), u16)
    block[0, : values.size % BLOCK] = values[values.size // BLOCK * BLOCK :]
    return block


class _UpperHalves(Packed):
    """float32 whose lower halves are zero before and after. Such parameters are small, so halves are copied."""

    def __init__(self, inner: HalfPacked) -> None:
        self._inner = inner

    @classmethod
    def of(cls, old: Array, new: Array) -> _UpperHalves | None:
        inner = HalfPacked.of(*((part >> u32(16)).astype(u16) for part in (old, new)))
        return None if inner is None else cls(inner)

    def restore(self, values: Tensor) -> None:
        whole = words(values)
        halves = (whole >> u32(16)).astype(u16)
        self._inner.restore_words(halves)
        np.left_shift(halves, u32(16), out=whole, dtype=u32)

    @property
    def nbytes(self) -> int:
        return self._inner.nbytes


class FloatPacked(Packed):
    """32 bits an element: differences of 16 bits, and the old values where the difference is larger."""

    def __init__(self, steps: Array, escapes: Array) -> None:
        self._steps, self._escapes = steps, escapes

    @classmethod
    def of(cls, old: Array, new: Array) -> FloatPacked | None:
        """Undo data, or None if too many differences do not fit."""
        steps, escapes = np.empty(old.size, i16), np.empty(int(old.size * ESCAPES_MAX) + BLOCK, u32)
        count = _compiled().pack_floats(old, new, steps, escapes)
        return None if count < 0 else cls(steps, escapes[:count].copy())

    def restore(self, values: Tensor) -> None:
        _compiled().unpack_floats(words(values), self._steps, self._escapes)

    @property
    def nbytes(self) -> int:
        return self._steps.nbytes + self._escapes.nbytes


def warm_up() -> None:
    """Compile every kernel (seconds once, then from the disk cache), so that the first step is not slow."""
    if kernels() is not None:
        for dtype in (torch.bfloat16, torch.float32):
            old = torch.zeros(PACKED_MIN, dtype=dtype)
            new = old + torch.tensor(1.1, dtype=dtype)
            packed(old, new).restore(new)
