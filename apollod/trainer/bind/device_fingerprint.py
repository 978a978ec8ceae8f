"""The fingerprint of tensors in device memory: summed on the device, with one number read back.

Modulo 2^64 a fingerprint is linear in the words of all tensors (live_fingerprint.py, with its K):

    F = sum over tensors of factor * sum_j w_j (2j + 1)        factor = K * weight of the tensor's name

so that one launch over all of them gives it. Triton's kernel reads memory that has the checkpoint's form; small tensors
in another dtype or at unaligned addresses are first copied into that form; everything else, and all without Triton, is
summed by torch, in blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from math import prod
from typing import Any

import torch
from torch import Tensor

_MASK = (1 << 64) - 1

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
