"""A product of bf16 matrices in float32, tile by tile: A [p, q] times B [q, r].

    C[i, j] = round_bf16(sum_k A[i, k] B[k, j])        sums in float32, one tile of k after the other

A tile of A and one of B are widened, which is exact, into memory that is used again and again; the float32 product of
the two is added up in a third, and rounded to the nearest bf16 once, at the end. So no float32 copy of a matrix ever
exists, at most SCRATCH_BYTES for a thread. Which tiles there are follows from p, q and r alone, and each is multiplied
by the library's own float32 product: the same bits in every run with one number of threads.
"""

from __future__ import annotations

from itertools import pairwise
from threading import local

import torch
from torch import Tensor

ROWS, INNER, COLUMNS = 1024, 4096, 1024
"""Of a tile at most. Widening a number costs as much as some 30 products with it: 3 % at so many rows and columns."""

FEW_ROWS = 4
"""Of `linear`'s hidden: torch's dot products of fewer with a weight are as fast as memory, and sum in float32, too."""

SCRATCH_BYTES = 4 * (ROWS * INNER + INNER * COLUMNS + ROWS * COLUMNS)


class _Scratch(local):
    """Three float32 tiles of a thread, as large as any product wanted them so far."""

    def __init__(self) -> None:
        self._tiles = [torch.empty(0)] * 3

    def tile(self, index: int, rows: int, columns: int) -> Tensor:
        """float32 [rows, columns], contiguous, with anything in it."""
        size = rows * columns
        if self._tiles[index].numel() < size:
            with torch.inference_mode(False):  # made in it, nobody outside could write it
                self._tiles[index] = torch.empty(size)
        return self._tiles[index][:size].view(rows, columns)


_scratch = _Scratch()


def matmul(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """A B, bf16 [p, r], of bf16 a [p, q] and b [q, r] of any strides; with `bias` [r] or [p, r] added before the
    rounding."""
    (p, q), r = a.shape, b.shape[1]
    out = a.new_empty(p, r)
    for rows in _parts(p, ROWS):
        for columns in _parts(r, COLUMNS):
            total = _scratch.tile(2, rows.stop - rows.start, columns.stop - columns.start)
            for inner in _parts(q, INNER):
                left, right = _widened(0, a[rows, inner]), _widened(1, b[inner, columns])
                if inner.start == 0:
                    torch.mm(left, right, out=total)
                else:
                    total.addmm_(left, right)
            if bias is not None:
                total.add_(bias[columns] if bias.dim() == 1 else bias[rows, columns])
            out[rows, columns].copy_(total)
    return out


def linear(hidden: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """As torch.nn.functional.linear: [..., r] of hidden [..., q] and weight [r, q], in tiles where both are bf16."""
    if hidden.dtype != torch.bfloat16 or weight.dtype != torch.bfloat16 or hidden.numel() < FEW_ROWS * weight.shape[1]:
        return torch.nn.functional.linear(hidden, weight, bias)
    flat = matmul(hidden.reshape(-1, hidden.shape[-1]), weight.t(), bias)
    return flat.view(*hidden.shape[:-1], weight.shape[0])


def batched(a: Tensor, b: Tensor) -> Tensor:
    """A B, bf16 [n, p, r], of bf16 a [n, p, q] and b [n, q, r]: small ones many at once, large ones one by one."""
    (n, p, q), r = a.shape, b.shape[2]
    out = a.new_empty(n, p, r)
    count = ROWS * INNER // max(1, p * q, q * r, p * r)
    if count:
        for some in _parts(n, count):
            out[some].copy_(torch.bmm(a[some].float(), b[some].float()))
        return out
    for one in range(n):
        out[one].copy_(matmul(a[one], b[one]))
    return out


def _widened(index: int, part: Tensor) -> Tensor:
    """In the order in which it lies in memory, read once from its beginning to its end."""
    if part.stride(1) > part.stride(0):
        return _widened(index, part.t()).t()
    return _scratch.tile(index, *part.shape).copy_(part)


def _parts(size: int, most: int) -> list[slice]:
    """At least one, which may be empty."""
    edges = [*range(0, size, most), size] if size else [0, 0]
    return [slice(first, last) for first, last in pairwise(edges)]
