"""AdamW (arXiv:1711.05101), in working blocks: its moments may be float32, bfloat16 or 8 bits a value.

    m = b1 m + (1 - b1) G          v = b2 v + (1 - b2) G*G
    W = round(W (1 - lr wd) - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps))
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor

from apollod.trainer import moment_store, whole_step
from apollod.trainer.moments import Norms, adam_, square_norm
from apollod.trainer.named_optimizer import Named, NamedOptimizer
from apollod.trainer.parameter_step import ParameterStep
from apollod.trainer.row_gradient import RowGradient, parts


def bias_correction(step: ParameterStep) -> float:
    """What makes up for moments that begin at zero: sqrt(1 - b2^t) / (1 - b1^t), a factor of m / sqrt(v)."""
    beta1, beta2 = step.group["betas"]
    return math.sqrt(1 - beta2**step.t) / float(1 - beta1**step.t)


def adam_step(step: ParameterStep, gradient: Tensor | RowGradient, eps: float) -> Norms:
    """One parameter by Adam: W = round(W (1 - lr wd) - lr correction m / (sqrt(v) + eps)).

    The update's norm is that of correction m / (sqrt(v) + eps). Temporaries are of one working block.
    """
    factor, square = bias_correction(step), 0.0
    if whole_step.fits(step, gradient):
        norms = whole_step.adam(step, cast(Tensor, gradient), -step.group["lr"] * factor, eps)
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


class AdamW(NamedOptimizer):
    """AdamW with stochastically rounded bf16 weights; for other arguments and `rounding` see `NamedOptimizer`.

    moments  "float32" | "bfloat16" | "8bit" (bitsandbytes); state m, v of the parameter's shape: see moment_store.py
    """

    NAME = "adamw"
    SHAPING = ("moments",)

    def __init__(
        self,
        params: Named,
        lr: float = 1e-5,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        moments: moment_store.Moments = "float32",
        seed: int = 0,
        rounding: str = "stochastic",
        round_to: Mapping[str, torch.dtype] | None = None,
    ) -> None:
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "moments": moments, "rounding": rounding}
        super().__init__(params, options, seed, round_to)

    def _in_range(self, group: Mapping[str, Any]) -> dict[str, bool]:
        return super()._in_range(group) | {
            "betas": all(0 <= beta < 1 for beta in group["betas"]),
            "eps": group["eps"] > 0,
            "moments": group["moments"] in ("float32", "bfloat16", "8bit"),
        }

    def _new_state(self, parameter: Tensor, group: Mapping[str, Any]) -> dict[str, Tensor]:
        if group["moments"] == "8bit":
            moment_store.quantizer()  # missing: better now than in the first step
        return moment_store.new(list(parameter.shape), group["moments"], parameter.device)

    def takes_rows(self, parameter: Tensor) -> bool:
        return self._rows_will_do(parameter)

    def _apply(self, step: ParameterStep, gradient: Tensor) -> Norms:
        return self._adam(step, gradient)

    def _apply_rows(self, step: ParameterStep, gradient: RowGradient) -> Norms:
        """Every element counts by itself, rows without gradient, too: their moments go on. Asked for twice: the norm comes first."""
        return self._adam(step, gradient)

    def _adam(self, step: ParameterStep, gradient: Tensor | RowGradient) -> Norms:
        # eps is added to a second moment without bias correction: scaled alike
        return adam_step(step, gradient, step.group["eps"] * math.sqrt(1 - step.group["betas"][1] ** step.t))


class AdamW8bit(AdamW):
    """`AdamW` with 8-bit moments."""

    NAME = "adamw8bit"

    def __init__(self, params: Named, lr: float = 1e-5, **options: Any) -> None:
        super().__init__(params, lr, **{"moments": "8bit", **options})
