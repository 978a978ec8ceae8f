"""One APOLLO update of one matrix, from its gradient to its weight: AdamW's learning rates, one a channel, estimated
from a low-rank projection of the gradient. Written from the formulas of arXiv:2412.05270 (and of arXiv:2410.01623 for
the limiter).

For a weight W [m, n] of rank r, with m >= n (rows are channels; otherwise the same with sides swapped) and gradient G:

    R  = G P                        P [n, r] of +-1/sqrt(r), rebuilt from (seed, name, step // gap)
    M  = b1 M + (1 - b1) R          V = b2 V + (1 - b2) R*R            Rt = M / (sqrt(V) + eps)
    s  = |Rt_c| / (|R_c| + 1e-8)    a channel ("channel"), or with Frobenius norms one for all ("tensor")
    U  = diag(s) G                  |U|^2 = sum_c s_c^2 |G_c|^2, so that U never has to exist
    L  = max(|U| / (prev + 1e-8) / gamma, 1)                           prev: limiter.py
    W  = round(W (1 - lr wd) - lr sqrt(1 - b2^t) / (1 - b1^t) sqrt(n / r) U / L)

sqrt(n / r) makes lr an AdamW lr: a projection to r of n dimensions shrinks s by sqrt(r / n).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from apollod.trainer.kernels.passes import compiled_passes
from apollod.trainer.optim import fused_update
from apollod.trainer.optim.adam_update import bias_correction
from apollod.trainer.optim.limiter import FALL, next_norm
from apollod.trainer.optim.moments import NORM_EPSILON, SQUARES, Norms, direction_
from apollod.trainer.optim.parameter_step import ParameterStep
from apollod.trainer.optim.projector import project, project_rows, square_norms, stream_key
from apollod.trainer.optim.row_gradient import RowGradient


def update_matrix(step: ParameterStep, gradient: Tensor, summed: int) -> Norms:
    """Update weight, moments and limiter. `summed`: see `projector.summed_dim`. The norm is that of U / L with its
    corrections."""
    rank, key = step.group["rank"], _projection_key(step)
    if fused_update.fits(step, gradient):  # all of the following in one call, with the same bits
        factor = _factor(step, summed)
        norms = fused_update.apollo(step, gradient, key, -step.group["lr"] * factor, summed)
        return Norms(norms.grad_square, norms.update * factor)
    low_rank, squares = project(gradient, key, rank), square_norms(gradient, summed)  # R, |G_c|^2
    coef, norms = _rates(step, low_rank, squares, summed)  # M, V, s, L
    if coef is not None:
        step.write(gradient, coef)  # W
    return norms


def update_rows(step: ParameterStep, gradient: RowGradient) -> Norms:
    """`update_matrix`, with the same bits, for a gradient in rows that are channels. Each row can be projected, scaled
    and written by itself. Only the limiter needs all of them, so the rows are requested twice."""
    rank, key, channels, device = step.group["rank"], _projection_key(step), gradient.shape[0], step.weight.device
    low_rank, squares = (
        torch.zeros(channels, rank, device=device),
        torch.zeros(channels, dtype=torch.float64, device=device),
    )
    for rows, values in gradient.blocks():
        low_rank[rows], squares[rows] = project_rows(values, key, rank), square_norms(values, 1)
    coef, norms = _rates(step, low_rank, squares, 1)
    del low_rank
    if coef is not None:
        for rows, values in gradient.every_block() if step.writes_all else gradient.blocks():
            step.write_rows(rows, values, coef[rows])
    return norms


def _projection_key(step: ParameterStep) -> int:
    return stream_key("projection", step.seed, step.name, step.number // step.group["gap"])


def _factor(step: ParameterStep, summed: int) -> float:
    """Compensates for M and V that begin at zero, and for the projection."""
    return bias_correction(step) * math.sqrt(step.weight.shape[summed] / step.group["rank"])


def _rates(step: ParameterStep, low_rank: Tensor, squares: Tensor, summed: int) -> tuple[Tensor | None, Norms]:
    """Update M, V and the limiter; returns the coefficients of the write, and the norms. (None, norms), with no state
    changed, if the gradient is zero or not finite."""
    factor, wide = _factor(step, summed), step.moments()
    coef, norms = channel_rates_(low_rank, squares, -step.group["lr"] * factor, summed, wide, step.group)
    if norms.zero or norms.nonfinite:
        return None, norms
    step.keep(wide)
    return coef, Norms(norms.grad_square, norms.update * factor)


def channel_rates_(
    low_rank: Tensor, squares: Tensor, rate: float, summed: int, state: Mapping[str, Tensor], group: Mapping[str, Any]
) -> tuple[Tensor, Norms]:
    """Update m, v and the limiter's norm; returns the coefficients rate s / L of W += coef G, float32 [m, 1] or [1, n].

    low_rank  R, float32, contiguous, of the shape of m and v; overwritten
    squares   |G_c|^2, float64 [channels]
    rate      -lr with its corrections
    summed    dimension inside a channel: 1 = rows are channels, 0 = columns are
    """
    compiled, m, v, previous = compiled_passes(), state["m"], state["v"], float(state["norm"])
    if compiled and low_rank.is_cpu:
        coef = torch.empty(squares.shape, dtype=torch.float32)
        arrays = [x.numpy() for x in (coef, low_rank, m, v, squares)]
        limiter = (rate, previous, float(group["gamma"]), NORM_EPSILON)
        one_scale = group["scale"] == "tensor"
        norms = Norms(*compiled.apollo(*arrays, summed == 1, one_scale, _moments(group), limiter, SQUARES))
    else:
        coef, norms = _channel_rates_reference_(low_rank, m, v, squares, rate, summed, previous, group)
    state["norm"].fill_(next_norm(norms.update, previous, FALL[group["limiter_rule"]]))
    return coef.unsqueeze(summed), norms


def _channel_rates_reference_(
    low_rank: Tensor,
    m: Tensor,
    v: Tensor,
    squares: Tensor,
    rate: float,
    summed: int,
    previous: float,
    group: Mapping[str, Any],
) -> tuple[Tensor, Norms]:
    """The definition: plain torch on any device. Norms are float64 sums of float32 squares."""
    norms = Norms(float(squares.sum()), 0.0)
    if norms.zero or norms.nonfinite:
        return squares, norms
    before = low_rank.square().sum(summed, dtype=torch.float64)  # |R_c|^2
    direction_(low_rank, m, v, _moments(group))  # R becomes Rt
    after = low_rank.square().sum(summed, dtype=torch.float64)  # |Rt_c|^2
    if group["scale"] == "tensor":
        before, after = before.sum(), after.sum()
    scales = (after.sqrt() / (before.sqrt() + NORM_EPSILON)).expand_as(squares)  # s
    norm = math.sqrt(float((scales.square() * squares).sum()))  # |U|
    limit = max(norm / (previous + NORM_EPSILON) / group["gamma"], 1.0)
    return (scales * (rate / limit)).float(), Norms(norms.grad_square, norm / limit)


def _moments(group: Mapping[str, Any]) -> tuple[float, float, float]:
    beta1, beta2 = group["betas"]
    return float(beta1), float(beta2), float(group["eps"])  # integers would make numba compile once more
