"""AdamW (arXiv:1711.05101): its options and state. The formulas: adam_update.py."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from apollod.trainer.optim import moment_store
from apollod.trainer.optim.adam_update import adam_update
from apollod.trainer.optim.moments import Norms
from apollod.trainer.optim.named_optimizer import Named, NamedOptimizer
from apollod.trainer.optim.parameter_step import ParameterStep
from apollod.trainer.optim.row_gradient import RowGradient


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
        options = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "moments": moments,
            "rounding": rounding,
        }
        super().__init__(params, options, seed, round_to)

    def _in_range(self, group: Mapping[str, Any]) -> dict[str, bool]:
        return super()._in_range(group) | {
            "betas": all(0 <= beta < 1 for beta in group["betas"]),
            "eps": group["eps"] > 0,
            "moments": group["moments"] in ("float32", "bfloat16", "8bit"),
        }

    def _new_state(self, parameter: Tensor, group: Mapping[str, Any]) -> dict[str, Tensor]:
        if group["moments"] == "8bit":
            moment_store.quantizer()  # fail now if it is missing, not in the first step
        return moment_store.new(list(parameter.shape), group["moments"], parameter.device)

    def takes_rows(self, parameter: Tensor) -> bool:
        return self._rows_will_do(parameter)

    def _apply(self, step: ParameterStep, gradient: Tensor) -> Norms:
        return self._adam(step, gradient)

    def _apply_rows(self, step: ParameterStep, gradient: RowGradient) -> Norms:
        """Handles every element, also rows without gradient, whose moments decay. Needs the rows twice: the norm comes
        first."""
        return self._adam(step, gradient)

    def _adam(self, step: ParameterStep, gradient: Tensor | RowGradient) -> Norms:
        # eps is added to a second moment without bias correction: scaled alike
        return adam_update(step, gradient, step.group["eps"] * math.sqrt(1 - step.group["betas"][1] ** step.t))


class AdamW8bit(AdamW):
    """`AdamW` with 8-bit moments."""

    NAME = "adamw8bit"

    def __init__(self, params: Named, lr: float = 1e-5, **options: Any) -> None:
        super().__init__(params, lr, **{"moments": "8bit", **options})
