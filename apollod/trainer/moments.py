"""Moments of one gradient and the update they make: Adam's own, or APOLLO's learning rate a channel (formulas: apollo.py).

Law of this file: eager torch defines the values, on any device; the compiled kernels give the same float32 bits. Products
and sums are separate operations (`lerp_`, `add_(alpha=)` and `addcmul_` fuse them on some machines only). Norms are float64
sums of float32 squares, so that their order does not show in the float32 that is made of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from apollod.trainer.projector import kernels
from apollod.trainer.row_gradient import RowGradient, parts

NORM_EPSILON = 1e-8  # added to the norms that are divided by (paper)

# Outside this range a gradient counts as zero or as not finite. Below, the epsilons are all there is: the update would be
# near zero, and the limiter (+1 % a step) would hold it there for hundreds of steps. Above, the second moment overflows.
GRADIENT_NORM_MIN, GRADIENT_NORM_MAX = 1e-8, 1e15
SQUARES = (GRADIENT_NORM_MIN**2, GRADIENT_NORM_MAX**2)

_State = Mapping[str, Tensor]
_Group = Mapping[str, Any]


class Norms(NamedTuple):
    """Of one parameter in one step. Where `zero` or `nonfinite`, no state has changed and nothing else has a meaning."""

    grad_square: float
    update: float
    """|U| (of APOLLO: |U| / L), or what an optimizer makes of it: see there"""

    @property
    def zero(self) -> bool:
        return self.grad_square < SQUARES[0]

    @property
    def nonfinite(self) -> bool:
        return not self.grad_square <= SQUARES[1]  # also true of NaN


def square_norm(gradient: Tensor | RowGradient) -> float:
    """|G|^2 of a contiguous gradient, in blocks; no full-size temporary."""
    compiled, total = kernels(), 0.0
    for _, values in parts(gradient):
        block = values.float()
        on_cpu = compiled if block.is_cpu else None
        total += on_cpu.square_sum(block.numpy()) if on_cpu else float(block.square().sum(dtype=torch.float64))
    return total


def adam_(gradient: Tensor, state: _State, moments: tuple[float, float, float]) -> float:
    """Update m and v with a contiguous float32 gradient of their shape, and turn it into U = m / (sqrt(v) + eps).

    moments: beta1, beta2, eps. Returns |U|^2.
    """
    compiled, m, v = kernels(), state["m"], state["v"]
    if compiled and gradient.is_cpu:
        return float(compiled.adam(*(x.numpy().reshape(-1) for x in (gradient, m, v)), moments))
    _direction_(gradient, m, v, moments)
    return float(gradient.square().sum(dtype=torch.float64))


def apollo_(low_rank: Tensor, squares: Tensor, rate: float, summed: int, state: _State, group: _Group) -> tuple[Tensor, Norms]:
    """Update m, v and the limiter's norm; the coefficients rate s / L of W += coef G, float32 [m, 1] or [1, n].

    low_rank  R, float32, contiguous, of the shape of m and v; overwritten
    squares   |G_c|^2, float64 [channels]
    rate      -lr with its corrections
    summed    dimension inside a channel: 1 = rows are channels, 0 = columns are
    """
    compiled, m, v, previous = kernels(), state["m"], state["v"], float(state["norm"])
    if compiled and low_rank.is_cpu:
        coef = torch.empty(squares.shape, dtype=torch.float32)
        arrays = [x.numpy() for x in (coef, low_rank, m, v, squares)]
        limiter = (rate, previous, float(group["gamma"]), NORM_EPSILON)
        whole = group["scale"] == "tensor"
        norms = Norms(*compiled.apollo(*arrays, summed == 1, whole, _moments(group), limiter, SQUARES))
    else:
        coef, norms = _apollo_reference_(low_rank, m, v, squares, rate, summed, previous, group)
    if norms.update > 0:  # an update of zero says nothing about growth, but would hold all later ones near zero
        state["norm"].fill_(norms.update)
    return coef.unsqueeze(summed), norms


def _apollo_reference_(
    low_rank: Tensor, m: Tensor, v: Tensor, squares: Tensor, rate: float, summed: int, previous: float, group: _Group
) -> tuple[Tensor, Norms]:
    norms = Norms(float(squares.sum()), 0.0)
    if norms.zero or norms.nonfinite:
        return squares, norms
    before = low_rank.square().sum(summed, dtype=torch.float64)
    _direction_(low_rank, m, v, _moments(group))
    after = low_rank.square().sum(summed, dtype=torch.float64)
    if group["scale"] == "tensor":
        before, after = before.sum(), after.sum()
    scales = (after.sqrt() / (before.sqrt() + NORM_EPSILON)).expand_as(squares)
    norm = math.sqrt(float((scales.square() * squares).sum()))
    limit = max(norm / (previous + NORM_EPSILON) / group["gamma"], 1.0)
    return (scales * (rate / limit)).float(), Norms(norms.grad_square, norm / limit)


def _direction_(gradient: Tensor, m: Tensor, v: Tensor, moments: tuple[float, float, float]) -> None:
    """m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g*g, then g = m / (sqrt(v) + eps); float32, in place."""
    beta1, beta2, eps = moments
    m.mul_(beta1).add_(gradient * (1 - beta1))
    v.mul_(beta2).add_(gradient.square_().mul_(1 - beta2))
    # torch's square root on CPU (MKL's) is not always the nearest float32; CUDA's, the kernels' and this one are.
    root = v.double().sqrt_().float() if v.is_cpu else v.sqrt()
    torch.div(m, root.add_(eps), out=gradient)


def _moments(group: _Group) -> tuple[float, float, float]:
    beta1, beta2 = group["betas"]
    return float(beta1), float(beta2), float(group["eps"])  # integers would make numba compile once more
