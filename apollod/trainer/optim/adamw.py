"""AdamW: one update of one parameter (arXiv:1412.6980, with the decoupled decay of arXiv:1711.05101), from its gradient
to its weight:

    m = b1 m + (1 - b1) G          v = b2 v + (1 - b2) G*G
    U = c m / (sqrt(v) + eps)      c = sqrt(1 - b2^t) / (1 - b1^t)
    W = round(W (1 - lr wd) - lr U)

in working blocks: temporaries are of one block, and moments may be float32, bfloat16 or 8 bits a value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from apollod.core.settings import OptimizerSettings
from apollod.trainer.kernels.passes import compiled_passes
from apollod.trainer.optim.moments import SQUARES, Moments, Norms, direction_, new_moments, quantizer, square_norm
from apollod.trainer.optim.named_optimizer import Named, NamedOptimizer
from apollod.trainer.optim.open_step import ParameterStep
from apollod.trainer.optim.row_gradient import RowGradient, parts


class AdamW(NamedOptimizer):
    """AdamW with stochastically rounded bf16 weights; for other arguments and `rounding` see `NamedOptimizer`.

    moments  "float32" | "bfloat16" | "8bit" (bitsandbytes); state m, v of the parameter's shape: see moments.py
    """

    NAME = "adamw"
    SHAPING: ClassVar[tuple[str, ...]] = ("moments",)
    DEPENDS_ON: ClassVar[tuple[str, ...]] = ("moments",)

    def __init__(
        self,
        params: Named,
        lr: float = 1e-5,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        moments: Moments = "float32",
        seed: int = 0,
        rounding: str = "stochastic",
        round_to: Mapping[str, torch.dtype] | None = None,
    ) -> None:
        options = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "moments": moments,
            "rounding": rounding,
        }  # fmt: skip
        super().__init__(params, options, seed, round_to)

    @classmethod
    def from_settings(cls, settings: OptimizerSettings, params: Sequence[tuple[str, Tensor]], **common: Any) -> Self:
        return cls(params, betas=settings.betas, moments=settings.moments, **common)

    def _in_range(self, group: Mapping[str, Any]) -> dict[str, bool]:
        return super()._in_range(group) | {
            "betas": all(0 <= beta < 1 for beta in group["betas"]),
            "eps": group["eps"] > 0,
            "moments": group["moments"] in ("float32", "bfloat16", "8bit"),
        }

    def _new_state(self, parameter: Tensor, group: Mapping[str, Any]) -> dict[str, Tensor]:
        if group["moments"] == "8bit":
            quantizer()  # fail now if it is missing, not in the first step
        return new_moments(list(parameter.shape), group["moments"], parameter.device)

    def _apply(self, step: ParameterStep, gradient: Tensor | RowGradient) -> Norms:
        """Handles every element, also rows without gradient, whose moments decay. Needs rows twice: the norm comes
        first."""
        # eps is added to a second moment without bias correction: scaled alike
        return adam_update(step, gradient, step.group["eps"] * math.sqrt(1 - step.group["betas"][1] ** step.t))


class AdamW8bit(AdamW):
    """`AdamW` with 8-bit moments."""

    NAME = "adamw8bit"
    DEPENDS_ON = ()
    LIBRARIES = ("bitsandbytes",)

    def __init__(self, params: Named, lr: float = 1e-5, **options: Any) -> None:
        super().__init__(params, lr, **{"moments": "8bit", **options})

    @classmethod
    def from_settings(cls, settings: OptimizerSettings, params: Sequence[tuple[str, Tensor]], **common: Any) -> Self:
        return cls(params, betas=settings.betas, **common)


# --- the formulas -------------------------------------------------------------------------------------------------


def adam_update(step: ParameterStep, gradient: Tensor | RowGradient, eps: float) -> Norms:
    """Update weight and moments by the formulas above; the norm is that of U."""
    factor, (beta1, beta2) = bias_correction(step), map(float, step.group["betas"])
    rate = -step.group["lr"] * factor
    if isinstance(gradient, Tensor) and (compiled := step.one_call(gradient)):  # all of the following
        addresses = [x.data_ptr() for x in (step.weight, gradient, step.state["m"], step.state["v"])]
        with step.kept(step.weight):
            grad_square, square = compiled.adam_step(
                *addresses, gradient.numel(), beta1, beta2, eps, rate, *step.rounding_options, *SQUARES
            )
        return Norms(grad_square, factor * math.sqrt(square))
    norms, square = Norms(square_norm(gradient), 0.0), 0.0
    if norms.zero or norms.nonfinite:
        return norms
    for part, values in parts(gradient):
        update, wide = values.to(torch.float32, copy=True), step.moments(part)
        square += adam_(update, wide, (beta1, beta2, eps))
        step.keep(wide, part)
        step.write(update, rate, part)
    return Norms(norms.grad_square, factor * math.sqrt(square))


def bias_correction(step: ParameterStep) -> float:
    """Compensates for moments that begin at zero: sqrt(1 - b2^t) / (1 - b1^t), a factor of m / sqrt(v)."""
    beta1, beta2 = step.group["betas"]
    return math.sqrt(1 - beta2**step.t) / float(1 - beta1**step.t)


def adam_(gradient: Tensor, state: Mapping[str, Tensor], moments: tuple[float, float, float]) -> float:
    """Update m and v with a contiguous float32 gradient of their shape, and turn it into U = m / (sqrt(v) + eps).

    moments: beta1, beta2, eps. Returns |U|^2.
    """
    compiled, m, v = compiled_passes(), state["m"], state["v"]
    if compiled and gradient.is_cpu:
        return float(compiled.adam(*(x.numpy().reshape(-1) for x in (gradient, m, v)), moments))
    direction_(gradient, m, v, moments)
    return float(gradient.square().sum(dtype=torch.float64))
