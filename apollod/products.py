"""Products of bf16 matrices on a CPU that has no instructions for them, for both children: computes every product of
bf16 tensors in float32. A model's layers, their backward pass, an optimizer's projections. Weights, activations and
gradients stay bf16; sums inside a product are float32, rounded once.

`products_in` acts below autograd, on the few operations that everything else is made of, so a model's code needs no
change, and what a backward pass keeps is what it keeps anyway. A product is made tile by tile, A [p, q] times B [q, r]:

    C[i, j] = round_bf16(sum_k A[i, k] B[k, j])        sums in float32, one tile of k after the other

A tile of A and one of B are widened, which is exact, into memory that is used again and again; the float32 product of
the two is added up in a third, and rounded to the nearest bf16 once, at the end. So no float32 copy of a matrix ever
exists, at most SCRATCH_BYTES for a thread. Which tiles there are follows from p, q and r alone, and each is multiplied
by the library's own float32 product: the same bits in every run with one number of threads.

Knows torch and nothing of apollod: what is multiplied, and who asked for it, is not its business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from threading import local
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_aten = torch.ops.aten

ROWS, INNER, COLUMNS = 1024, 4096, 1024
"""Largest tile. Widening a number costs as much as some 30 products with it: 3 % at so many rows and columns."""

FEW_ROWS = 4
"""Rows of `linear`'s hidden below which torch's own dot products are as fast as memory; they sum in float32, too."""

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
                left, right = _tile_of(0, a[rows, inner]), _tile_of(1, b[inner, columns])
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


def _tile_of(index: int, part: Tensor) -> Tensor:
    """In the order in which it lies in memory, read once from its beginning to its end."""
    if part.stride(1) > part.stride(0):
        return _tile_of(index, part.t()).t()
    return _scratch.tile(index, *part.shape).copy_(part)


def _parts(size: int, most: int) -> list[slice]:
    """At least one, which may be empty."""
    edges = [*range(0, size, most), size] if size else [0, 0]
    return [slice(first, last) for first, last in pairwise(edges)]


# --- all products of a thread -----------------------------------------------------------------------------------------


def products_in(dtype: Literal["bf16", "float32"]) -> AbstractContextManager[object]:
    """While it is open, this thread multiplies bf16 matrices on CPU in float32, or as torch does ("bf16")."""
    return _Float32Products() if dtype == "float32" else nullcontext()  # type: ignore[no-untyped-call]


class _Float32Products(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """See the head of this file."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        instead = _INSTEAD.get(function)
        if instead is None or args[0].dtype != torch.bfloat16 or not args[0].is_cpu:
            return function(*args, **(kwargs or {}))
        return instead(*args, **(kwargs or {}))


def _addmm(bias: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    if beta == 1 and alpha == 1:
        return matmul(a, b, bias.expand(a.shape[0], b.shape[1]))
    return bias.mul(beta).add(matmul(a, b), alpha=alpha)


def _baddbmm(bias: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    return batched(a, b).mul_(alpha).add_(bias, alpha=beta)


def _matrix_vector(a: Tensor, b: Tensor) -> Tensor:
    return matmul(a, b[:, None])[:, 0]


def _widened(function: Any, rounded: slice = slice(None)) -> Callable[..., Any]:
    """The operation on float32 copies; of its results, these are rounded. For activations and small weights."""

    def wide(value: Any) -> Any:
        return value.float() if isinstance(value, Tensor) and value.dtype == torch.bfloat16 else value

    def instead(*args: Any, **kwargs: Any) -> Any:
        found = function(*map(wide, args), **{name: wide(value) for name, value in kwargs.items()})
        if isinstance(found, Tensor):
            return found.bfloat16()
        results = list(found)
        results[rounded] = [one.bfloat16() if isinstance(one, Tensor) else one for one in results[rounded]]
        return tuple(results)

    return instead


_FORWARD = _aten._scaled_dot_product_flash_attention_for_cpu.default  # gives log-sums beside, float32 either way
_BACKWARD = _aten._scaled_dot_product_flash_attention_for_cpu_backward.default

_INSTEAD: dict[Any, Callable[..., Any]] = {
    _aten.mm.default: matmul,
    _aten.addmm.default: _addmm,
    _aten.mv.default: _matrix_vector,
    _aten.bmm.default: batched,
    _aten.baddbmm.default: _baddbmm,
    _aten.linear.default: linear,  # where nothing is kept for a backward pass, it comes whole
    _FORWARD: _widened(_FORWARD, slice(1)),
    _BACKWARD: _widened(_BACKWARD),
    _aten.convolution.default: _widened(_aten.convolution.default),
    _aten.convolution_backward.default: _widened(_aten.convolution_backward.default),
}
