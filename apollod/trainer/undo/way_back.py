"""Undo data of a write, `Packed`, and the kinds that a device makes while the step goes on, in torch operations
(undo_codec.py has the others, and chooses)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from apollod.trainer.kernels.device_to_host import to_host

TORCH_CHUNK = 1 << 22  # elements: bounds the temporaries on a GPU


class Packed(ABC):
    """Reconstructs the values before a write from those after it."""

    @abstractmethod
    def restore(self, values: Tensor) -> None:
        """Turn `values` (flat, contiguous, as after the write) into those before the write, in place."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Memory in use."""


class OnDevice(Packed):
    """Undo data that a device is still making. Call `settle` first, then `fetch`, each when the device may have
    finished the earlier work: neither waits for work queued later."""

    held_bytes: int
    """device memory of the old values, in use until `fetch`"""

    @abstractmethod
    def settle(self) -> None:
        """Determine `nbytes`."""

    @abstractmethod
    def fetch(self) -> None:
        """Move the data to host memory, and free that of the device."""


class Sent(OnDevice):
    """Old values themselves, in tensors that do not change any more."""

    def __init__(self, old: Tensor) -> None:
        self._old, self._there, self._fetched = old, _queued(old), False
        self.held_bytes = old.nbytes

    def settle(self) -> None:
        """Do nothing: the size is known."""

    def fetch(self) -> None:
        if not self._fetched:
            self._old, self._fetched = to_host(self._old, after=self._there), True

    def values(self) -> Tensor:
        """The old values in host memory."""
        self.fetch()
        return self._old

    def restore(self, values: Tensor) -> None:
        values.view(torch.uint8).copy_(self.values().view(torch.uint8))  # bytes: no conversion touches a NaN

    @property
    def nbytes(self) -> int:
        return self.held_bytes


class TorchPacked(OnDevice):
    """Like `HalfPacked`, on any device, without blocks. The number of values without a code is read in `settle`, so
    that the device is not waited for in between; `old` is kept until then. Not `deferred`: read it at once."""

    def __init__(self, old: Tensor, new: Tensor, deferred: bool = False) -> None:
        self._size = old.numel()
        self._old: Tensor | None = old
        self.held_bytes = old.nbytes
        before, after = old.view(torch.int16), new.view(torch.int16)
        parts = [_codes(after[part] - before[part]) for part in self._chunks()]
        self._codes = torch.cat([_joined(part) for part in parts])
        counts = torch.stack([(part == 3).sum() for part in parts])
        self._counts = torch.empty(len(parts), dtype=torch.int64, pin_memory=counts.is_cuda)
        self._counts.copy_(counts, non_blocking=True)
        self._there = _queued(old)
        self._escapes: list[Tensor] = []
        self._fetched = False
        if not deferred:
            self.settle()
            self.fetch()

    @property
    def settled(self) -> bool:
        return self._old is None

    def settle(self) -> None:
        if self._old is None:
            return
        if self._there is not None:
            self._there.synchronize()
        old, self._old = self._old.view(torch.int16), None
        for chunk, count in zip(self._chunks(), self._counts.tolist(), strict=True):
            far = torch.nonzero_static(self._split(self._codes, chunk) == 3, size=count).view(-1)
            self._escapes.append(old[chunk][far])
        self._there = _queued(old)

    def fetch(self) -> None:
        self.settle()
        if not self._fetched:
            self._codes = to_host(self._codes, after=self._there)
            self._escapes = [to_host(escapes, after=self._there) for escapes in self._escapes]
            self._fetched = True

    def restore(self, values: Tensor) -> None:
        self.fetch()
        whole, codes = values.view(torch.int16), self._codes.to(values.device)
        for chunk, escapes in zip(self._chunks(), self._escapes, strict=True):
            code = self._split(codes, chunk)
            whole[chunk] -= (code & 1).to(torch.int16) - (code >> 1)
            far = torch.nonzero_static(code == 3, size=len(escapes)).view(-1)
            whole[chunk].index_copy_(0, far, escapes.to(values.device))

    @property
    def nbytes(self) -> int:
        return self._codes.nbytes + sum(escapes.nbytes for escapes in self._escapes)

    def _chunks(self) -> list[slice]:
        return [slice(first, min(first + TORCH_CHUNK, self._size)) for first in range(0, self._size, TORCH_CHUNK)]

    def _split(self, codes: Tensor, chunk: slice) -> Tensor:
        """uint8 codes of one chunk, one per element."""
        size = chunk.stop - chunk.start
        four = codes[chunk.start // 4 : chunk.start // 4 + -(-size // 4)]
        return torch.cat([(four >> shift) & 3 for shift in (0, 2, 4, 6)])[:size]


def _queued(values: Tensor) -> Any:
    """A CUDA event after all work queued so far; None on CPU, where it is done."""
    return torch.cuda.current_stream(values.device).record_event() if values.is_cuda else None


def _codes(steps: Tensor) -> Tensor:
    """uint8 codes of int16 differences."""
    far = (steps > 1) | (steps < -1)
    return torch.where(far, 3, torch.where(steps < 0, 2, steps)).to(torch.uint8)


def _joined(codes: Tensor) -> Tensor:
    """Pack four codes into a byte: elements k, q + k, 2 q + k, 3 q + k of 4 q."""
    missing = -codes.numel() % 4
    a, b, c, d = torch.nn.functional.pad(codes, (0, missing)).view(4, -1)
    joined: Tensor = a | b << 2 | c << 4 | d << 6
    return joined
