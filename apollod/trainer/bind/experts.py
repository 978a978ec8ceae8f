"""Experts: one tensor [experts, out, in] in transformers' modules; in the checkpoint one matrix each, or such a tensor;
for the optimizer one matrix each, so that it projects them one by one. All share the engine's memory.

transformers' own way of saving the module tells which rows of its tensor form a checkpoint's matrix: run on row
numbers, it returns them under the checkpoint's names.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

from apollod.errors import ShareRefused
from apollod.model.decoder import expert_name, is_stack

_REPORT = "report this model's architecture"


@dataclass(frozen=True)
class Rows:
    """A tensor of the checkpoint: `count` rows from `first` on of a model's tensor, seen as [rows, columns]."""

    name: str
    first: int
    count: int


def saved_as(model: PreTrainedModel, shapes: Mapping[str, torch.Size]) -> dict[str, list[Rows]]:
    """Names in a checkpoint of parameters of these shapes, and the rows of a stack of experts that each one has, in
    order. A parameter that is not a stack has one name, of one row. Raises ShareRefused if a name is not made of whole
    rows."""
    numbers, starts, end = dict[str, Tensor](), list[int](), 0
    for name, shape in shapes.items():
        starts.append(end)
        rows = shape[0] * shape[1] if is_stack(name, tuple(shape)) else 1
        numbered = torch.arange(end, end + rows)
        numbers[name] = numbered.view(*shape[:2], 1).expand(-1, -1, 2) if rows > 1 else numbered
        end += rows
    found: dict[str, list[Rows]] = {name: [] for name in shapes}
    for stored, numbered in revert_weight_conversion(model, numbers).items():
        rows_of = numbered.reshape(-1, 2)[:, 0] if numbered.shape[-1] == 2 else numbered.reshape(-1)
        first, count = int(rows_of[0]), len(rows_of)
        at = bisect_right(starts, first) - 1
        name = list(shapes)[at]
        if not torch.equal(rows_of, torch.arange(first, first + count)):
            raise ShareRefused(f"{stored} is stored in another order than Hugging Face's {name}", _REPORT)
        found[name].append(Rows(stored, first - starts[at], count))
    return {name: sorted(rows, key=lambda part: part.first) for name, rows in found.items()}


def stack_rows(name: str, shape: torch.Size) -> list[Rows]:
    """Rows of a tensor that the checkpoint stores as a stack, too: one matrix per expert."""
    return [Rows(expert_name(name, number), number * shape[1], shape[1]) for number in range(shape[0])]


def whole(matrices: Mapping[str, Tensor], rows: list[Rows], shape: torch.Size) -> Tensor:
    """The contiguous tensor of this shape whose rows the matrices are. Raises ShareRefused if memory is laid out
    differently."""
    start = matrices[rows[0].name]
    dtype, width = start.dtype, shape[-1]
    for part in rows:
        matrix = matrices[part.name]
        place = start.data_ptr() + (part.first - rows[0].first) * width * dtype.itemsize
        if (matrix.data_ptr(), matrix.dtype) != (place, dtype) or not matrix.is_contiguous():
            raise ShareRefused(
                f"the engine does not hold {part.name} right behind the experts before it",
                'set [engine] args = ["--moe-backend", "triton"]',
            )
        if matrix.numel() != part.count * width:
            raise ShareRefused(f"{part.name} has shape {list(matrix.shape)}", _REPORT)
    if sum(part.count for part in rows) * width != prod(shape):
        raise ShareRefused(f"the experts from {rows[0].name} on do not fill {list(shape)}", _REPORT)
    return start.as_strided(shape, (shape[1] * width, width, 1), start.storage_offset())


def split(module: nn.Module, leaf: str, stack: Tensor, rows: list[Rows]) -> list[nn.Parameter]:
    """Make `stack` the tensor `leaf` of a module of transformers, and return its matrices as parameters, which receive
    the gradient of the tensor."""
    module._parameters[leaf] = nn.Parameter(stack, stack.is_floating_point())
    parametrize.register_parametrization(module, leaf, _Stack(stack, rows), unsafe=True)
    own: Any = module.parametrizations[leaf]  # type: ignore[index]
    return [getattr(own, f"original{number}") for number in range(len(rows))]


class _Stack(nn.Module):
    """A parametrization (torch.nn.utils.parametrize) of a tensor by the matrices that it consists of."""

    def __init__(self, stack: Tensor, rows: list[Rows]) -> None:
        super().__init__()
        self._stack, self._rows = (stack,), rows  # in a tuple, so that it does not become a buffer

    def forward(self, *matrices: Tensor) -> Tensor:
        return _Joined.apply(self._stack[0], self._rows, *matrices)  # type: ignore[no-any-return, no-untyped-call]

    def right_inverse(self, stack: Tensor) -> list[Tensor]:
        """The matrices, by reference."""
        flat = stack.detach().view(-1, stack.shape[-1])
        return [flat[part.first : part.first + part.count] for part in self._rows]


class _Joined(torch.autograd.Function):
    """The stack itself, as a function of its matrices. Nothing is copied; the backward pass splits the gradient."""

    @staticmethod
    def forward(ctx: Any, stack: Tensor, rows: list[Rows], *_matrices: Tensor) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.rows = rows
        return stack.view_as(stack)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        if gradient is None:
            return (None, None, *(None for _ in ctx.rows))
        out = gradient.shape[1]
        # of one expert each: slices of a gradient that may be laid out in any order
        parts = (gradient[part.first // out, part.first % out : part.first % out + part.count] for part in ctx.rows)
        return (None, None, *parts)
