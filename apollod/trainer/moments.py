"""Moments of a gradient, and the learning rates made of them.

For float32 R and its moments, all of one shape, with channels along one dimension:

    M  = b1 M + (1 - b1) R          V = b2 V + (1 - b2) R*R            Rt = M / (sqrt(V) + eps)
    s  = |Rt_c| / (|R_c| + 1e-8)    a channel, or with Frobenius norms one for all

Law of this file: eager torch defines the values, on any device; the compiled kernels give the same bits. Products and sums
are separate operations (`lerp_`, `add_(alpha=)` and `addcmul_` fuse them on some machines only). Norms are float64 sums of
float32 squares, so that their order does not show in the float32 that is made of them.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

NORM_EPSILON = 1e-8  # added to the norms that are divided by (paper)


def direction_(gradient: Tensor, m: Tensor, v: Tensor, betas: tuple[float, float], eps: float) -> float:
    """Update m and v in place with a contiguous float32 gradient of their shape, and turn it into m / (sqrt(v) + eps).

    Returns the Euclidean norm of that.
    """
    if gradient.is_cpu:
        from apollod.trainer import kernels_cpu

        if kernels_cpu.AVAILABLE:
            return math.sqrt(kernels_cpu.direction(*(x.view(-1).numpy() for x in (gradient, m, v)), *betas, eps))
    _direction_reference_(gradient, m, v, betas, eps)
    return math.sqrt(float(gradient.square().sum(dtype=torch.float64)))


def channel_scales(
    low_rank: Tensor,
    m: Tensor,
    v: Tensor,
    squares: Tensor,
    summed: int,
    whole: bool,
    betas: tuple[float, float],
    eps: float,
) -> tuple[Tensor, float]:
    """Update m and v in place with R; (s, |diag(s) G|), s float64 [channels].

    low_rank R float32, contiguous, of the shape of m and v; overwritten
    squares  |G_c|^2, float64 [channels]
    summed   dimension inside a channel: 1 = rows are channels, 0 = columns are
    whole    one s for all channels, from Frobenius norms
    """
    if low_rank.is_cpu:
        from apollod.trainer import kernels_cpu

        if kernels_cpu.AVAILABLE:
            scales = np.empty(low_rank.shape[1 - summed])
            arrays = (low_rank.numpy(), m.numpy(), v.numpy(), squares.numpy(), scales)
            square = kernels_cpu.channel_scales(*arrays, summed == 1, whole, *betas, eps, NORM_EPSILON)
            return torch.from_numpy(scales), math.sqrt(square)
    before = low_rank.square().sum(summed, dtype=torch.float64)
    _direction_reference_(low_rank, m, v, betas, eps)
    after = low_rank.square().sum(summed, dtype=torch.float64)
    if whole:
        before, after = before.sum().expand_as(before), after.sum().expand_as(after)
    s = after.sqrt() / (before.sqrt() + NORM_EPSILON)
    return s, math.sqrt(float((s.square() * squares).sum()))


def _direction_reference_(gradient: Tensor, m: Tensor, v: Tensor, betas: tuple[float, float], eps: float) -> None:
    beta1, beta2 = betas
    m.mul_(beta1).add_(gradient * (1 - beta1))
    v.mul_(beta2).add_(gradient.square_().mul_(1 - beta2))
    torch.div(m, v.sqrt().add_(eps), out=gradient)
