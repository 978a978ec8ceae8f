"""Adafactor (arXiv:1804.04235) with a given learning rate: the second moment of a matrix as one value a row and a
column.

    b_t = 1 - t^-0.8
    r   = b_t r + (1 - b_t) mean_j (G*G + 1e-30)      c = b_t c + (1 - b_t) mean_i (G*G + 1e-30)
    V   = r c' / mean(r)        (a parameter that is not 2-D: V = b_t V + (1 - b_t) (G*G + 1e-30))
    U   = G / sqrt(V)           U = U / max(1, rms(U) / clip)
    W   = round(W (1 - lr wd) - lr U)

No first moment, no learning rate from the weights' size and no schedule of its own: lr is an AdamW lr.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor

from apollod.core.settings import OptimizerSettings
from apollod.trainer.optim.moments import Norms, square_norm
from apollod.trainer.optim.named_optimizer import Named, NamedOptimizer
from apollod.trainer.optim.open_step import ParameterStep
from apollod.trainer.optim.projector import square_norms_of
from apollod.trainer.optim.row_gradient import RowGradient, parts

DECAY_EXPONENT = 0.8
SQUARE_MIN = 1e-30  # added to squares, so that no second moment is zero


class Adafactor(NamedOptimizer):
    """Adafactor with stochastically rounded bf16 weights; for other arguments and `rounding` see `NamedOptimizer`.

    clip  largest root mean square of an update before lr. State: row float32 [m] and column float32 [n] of a matrix, v
          float32 of the shape of any other parameter
    """

    NAME = "adafactor"

    def __init__(
        self,
        params: Named,
        lr: float = 1e-5,
        *,
        clip: float = 1.0,
        weight_decay: float = 0.0,
        seed: int = 0,
        rounding: str = "stochastic",
        round_to: Mapping[str, torch.dtype] | None = None,
    ) -> None:
        super().__init__(
            params, {"lr": lr, "clip": clip, "weight_decay": weight_decay, "rounding": rounding}, seed, round_to
        )

    @classmethod
    def from_settings(cls, settings: OptimizerSettings, params: Sequence[tuple[str, Tensor]], **common: Any) -> Self:
        return cls(params, **common)

    def _in_range(self, group: Mapping[str, Any]) -> dict[str, bool]:
        return super()._in_range(group) | {"clip": group["clip"] > 0}

    def _new_state(self, parameter: Tensor, group: Mapping[str, Any]) -> dict[str, Tensor]:
        options: dict[str, Any] = {"dtype": torch.float32, "device": parameter.device}
        if parameter.dim() == 2:
            rows, columns = parameter.shape
            return {"row": torch.zeros(rows, **options), "column": torch.zeros(columns, **options)}
        return {"v": torch.zeros(parameter.shape, **options)}

    def _apply(self, step: ParameterStep, gradient: Tensor | RowGradient) -> Norms:
        """Needs rows four times: for sums of rows and columns, then for the update's size, then for the update."""
        norms = Norms(square_norm(gradient), 0.0)
        if norms.zero or norms.nonfinite:
            return norms
        factored = isinstance(gradient, RowGradient) or gradient.dim() == 2
        scales = _matrix_scales_(step, gradient) if factored else _element_scales_(step, gradient)
        size = gradient.shape.numel()
        square = sum(float(update.square().sum(dtype=torch.float64)) for _, update in _updates(gradient, scales))
        limit = max(1.0, math.sqrt(square / size) / step.group["clip"])
        for part, update in _updates(gradient, scales):
            step.write(update, -step.group["lr"] / limit, part)
        return Norms(norms.grad_square, math.sqrt(square) / limit)


def _matrix_scales_(step: ParameterStep, gradient: Tensor | RowGradient) -> tuple[Tensor, ...]:
    """Update row and column; returns 1 / sqrt(V) as factors float32 [m, 1] and [n]."""
    scales = []
    width = gradient.shape[1]
    sums = square_norms_of((values.view(-1, width) for _, values in parts(gradient, width)), 1, 0)
    for key, squares, count in zip(("row", "column"), sums, reversed(gradient.shape), strict=True):
        mean = squares.div_(count).add_(SQUARE_MIN)
        _decay_(step.state[key], mean, step.t)
        scales.append(step.state[key].double())
    row, column = scales
    return (row.div_(row.mean()).rsqrt_().float().unsqueeze(1), column.rsqrt_().float())


def _element_scales_(step: ParameterStep, gradient: Any) -> tuple[Tensor, ...]:
    """Update v; returns 1 / sqrt(V), float32 [n]."""
    _decay_(step.state["v"], gradient.double().square_().add_(SQUARE_MIN), step.t)
    return (step.state["v"].double().rsqrt_().float().view(-1),)


def _decay_(kept: Tensor, mean: Tensor, t: int) -> None:
    beta: float = 1 - t**-DECAY_EXPONENT
    kept.copy_(kept.double().mul_(beta) + mean.mul_(1 - beta))


def _updates(gradient: Tensor | RowGradient, scales: tuple[Tensor, ...]) -> Iterator[tuple[slice, Tensor]]:
    """G / sqrt(V) in working blocks: (elements, float32 flat)."""
    if len(scales) == 1:
        for part, values in parts(gradient):
            yield part, values.float() * scales[0][part]
        return
    row, column = scales
    width = column.numel()
    for part, values in parts(gradient, width):
        rows = slice(part.start // width, part.stop // width)
        yield part, (values.view(-1, width).float() * column).mul_(row[rows]).view(-1)
