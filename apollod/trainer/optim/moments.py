"""Shared by the formulas of adam_update.py and apollo_update.py: moments, norms, and the range of usable gradients.

Law of this file: eager torch defines the values, on any device; the compiled kernels give the same float32 bits.
Products and sums are separate operations (`lerp_`, `add_(alpha=)` and `addcmul_` fuse them on some machines only).
Norms are float64 sums of float32 squares, so that their order does not affect the float32 result.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from apollod.trainer.kernels.passes import compiled_passes
from apollod.trainer.optim.row_gradient import RowGradient, parts

NORM_EPSILON = 1e-8  # added to norms in denominators (paper)

# Outside this range a gradient counts as zero or as not finite. Below, the epsilons dominate: the update would
# be near zero, and the limiter (+1 % a step) would hold it there for hundreds of steps. Above, the second moment
# overflows.
GRADIENT_NORM_MIN, GRADIENT_NORM_MAX = 1e-8, 1e15
SQUARES = (GRADIENT_NORM_MIN**2, GRADIENT_NORM_MAX**2)


class Norms(NamedTuple):
    """Norms of one parameter in one step. If `zero` or `nonfinite`, no state changed and all else is meaningless."""

    grad_square: float
    update: float
    """|U| (of APOLLO: |U| / L), or the optimizer's variant of it: see there"""

    @property
    def zero(self) -> bool:
        return self.grad_square < SQUARES[0]

    @property
    def nonfinite(self) -> bool:
        return not self.grad_square <= SQUARES[1]  # also true of NaN


def square_norm(gradient: Tensor | RowGradient) -> float:
    """|G|^2 of a contiguous gradient, in blocks; no full-size temporary."""
    compiled, total = compiled_passes(), 0.0
    for _, values in parts(gradient):
        block = values.float()
        on_cpu = compiled if block.is_cpu else None
        total += on_cpu.square_sum(block.numpy()) if on_cpu else float(block.square().sum(dtype=torch.float64))
    return total


def direction_(gradient: Tensor, m: Tensor, v: Tensor, moments: tuple[float, float, float]) -> None:
    """m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g*g, then g = m / (sqrt(v) + eps); float32, in place."""
    beta1, beta2, eps = moments
    m.mul_(beta1).add_(gradient * (1 - beta1))
    v.mul_(beta2).add_(gradient.square_().mul_(1 - beta2))
    # torch's square root on CPU (MKL's) is not always the nearest float32; CUDA's, the kernels' and this one are.
    root = v.double().sqrt_().float() if v.is_cpu else v.sqrt()
    torch.div(m, root.add_(eps), out=gradient)
