"""Computes every product of bf16 tensors on CPU in float32: a model's layers, their backward pass, an optimizer's
projections. Weights, activations and gradients stay bf16; sums inside a product are float32, rounded once.

It acts below autograd, on the few operations that everything else is made of, so a model's code needs no change, and
what a backward pass keeps is what it keeps anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from apollod.products import tiles

_aten = torch.ops.aten


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
        return tiles.matmul(a, b, bias.expand(a.shape[0], b.shape[1]))
    return bias.mul(beta).add(tiles.matmul(a, b), alpha=alpha)


def _baddbmm(bias: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    return tiles.batched(a, b).mul_(alpha).add_(bias, alpha=beta)


def _matrix_vector(a: Tensor, b: Tensor) -> Tensor:
    return tiles.matmul(a, b[:, None])[:, 0]


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
    _aten.mm.default: tiles.matmul,
    _aten.addmm.default: _addmm,
    _aten.mv.default: _matrix_vector,
    _aten.bmm.default: tiles.batched,
    _aten.baddbmm.default: _baddbmm,
    _aten.linear.default: tiles.linear,  # where nothing is kept for a backward pass, it comes whole
    _FORWARD: _widened(_FORWARD, slice(1)),
    _BACKWARD: _widened(_BACKWARD),
    _aten.convolution.default: _widened(_aten.convolution.default),
    _aten.convolution_backward.default: _widened(_aten.convolution_backward.default),
}
