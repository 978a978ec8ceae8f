"""One Adam update of one parameter (arXiv:1412.6980, with the decoupled decay of arXiv:1711.05101), from its gradient
to its weight:

    m = b1 m + (1 - b1) G          v = b2 v + (1 - b2) G*G
    U = c m / (sqrt(v) + eps)      c = sqrt(1 - b2^t) / (1 - b1^t)
    W = round(W (1 - lr wd) - lr U)

in working blocks: temporaries are of one block, and moments may be float32, bfloat16 or 8 bits a value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor

from apollod.trainer.kernels.passes import compiled_passes
from apollod.trainer.optim import fused_update
from apollod.trainer.optim.moments import Norms, direction_, square_norm
from apollod.trainer.optim.parameter_step import ParameterStep
from apollod.trainer.optim.row_gradient import RowGradient, parts


def bias_correction(step: ParameterStep) -> float:
    """Compensates for moments that begin at zero: sqrt(1 - b2^t) / (1 - b1^t), a factor of m / sqrt(v)."""
    beta1, beta2 = step.group["betas"]
    return math.sqrt(1 - beta2**step.t) / float(1 - beta1**step.t)


def adam_update(step: ParameterStep, gradient: Tensor | RowGradient, eps: float) -> Norms:
    """Update weight and moments by the formulas above; the norm is that of U."""
    factor, square = bias_correction(step), 0.0
    if fused_update.fits(step, gradient):
        norms = fused_update.adam(step, cast(Tensor, gradient), -step.group["lr"] * factor, eps)
        return Norms(norms.grad_square, factor * norms.update)
    norms = Norms(square_norm(gradient), 0.0)
    if norms.zero or norms.nonfinite:
        return norms
    beta1, beta2 = step.group["betas"]
    for part, values in parts(gradient):
        update, wide = values.to(torch.float32, copy=True), step.moments(part)
        square += adam_(update, wide, (float(beta1), float(beta2), eps))
        step.keep(wide, part)
        step.write(update, -step.group["lr"] * factor, part)
    return Norms(norms.grad_square, factor * math.sqrt(square))


def adam_(gradient: Tensor, state: Mapping[str, Tensor], moments: tuple[float, float, float]) -> float:
    """Update m and v with a contiguous float32 gradient of their shape, and turn it into U = m / (sqrt(v) + eps).

    moments: beta1, beta2, eps. Returns |U|^2.
    """
    compiled, m, v = compiled_passes(), state["m"], state["v"]
    if compiled and gradient.is_cpu:
        return float(compiled.adam(*(x.numpy().reshape(-1) for x in (gradient, m, v)), moments))
    direction_(gradient, m, v, moments)
    return float(gradient.square().sum(dtype=torch.float64))
