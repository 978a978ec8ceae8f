"""APOLLO (arXiv:2412.05270): its options, its state, and the choice of its back end. The formulas: apollo_update.py.

A parameter that is not 2-D, or whose smaller side is below the rank, uses Adam (adam_update.py) with the same betas and
eps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from apollod.trainer.optim import moment_store
from apollod.trainer.optim.adam_update import adam_update
from apollod.trainer.optim.apollo_update import update_matrix, update_rows
from apollod.trainer.optim.backends.lookup import triton_backend
from apollod.trainer.optim.limiter import FALL, LimiterRule
from apollod.trainer.optim.moments import Norms
from apollod.trainer.optim.named_optimizer import Named, NamedOptimizer
from apollod.trainer.optim.parameter_step import ParameterStep
from apollod.trainer.optim.projector import summed_dim
from apollod.trainer.optim.row_gradient import BLOCK_ROWS, RowGradient, SparseRows
from apollod.trainer.optim.step_account import NamedParameter
from apollod.wire.messages import Kernels

Scale = Literal["channel", "tensor"]

WARM_UP_ROWS = 64  # of a matrix; a multiple of 16, since pointers and strides are specialized by that


class Apollo(NamedOptimizer):
    """APOLLO with stochastically rounded bf16 weights; for other arguments and `rounding` see `NamedOptimizer`.

    lr            learning rate of an AdamW
    rank          r; 1 with scale="tensor" is APOLLO-Mini
    scale         "channel" | "tensor"
    betas, eps    of the moments. eps is added to sqrt(V) before bias correction
    weight_decay  decoupled; see `rounding.write_update_` for its granularity
    gap           steps for which a projection is kept. 1 would destroy momentum: M would average unrelated sketches
    gamma         largest growth of an update's norm from step to step; math.inf switches the limiter off
    limiter_rule  "envelope" | "growth": which norm it grows from; see limiter.py
    moments       "float32" | "bfloat16": see moment_store.py
    kernels       "auto": on a GPU Triton's if it is installed (apollo_triton.py: a step then waits for the device once,
                  in `finish`), else the eager path, which is their oracle. The bits of a step depend on which it is

    State: m, v [m, r] or [r, n] and norm float64 [] (limiter.py); of Adam's parameters m, v of the parameter's shape.
    """

    NAME = "apollo"
    SHAPING = ("rank", "moments")

    def __init__(
        self,
        params: Named,
        lr: float = 1e-5,
        *,
        rank: int = 64,
        scale: Scale = "channel",
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        gap: int = 200,
        gamma: float = 1.01,
        limiter_rule: LimiterRule = "envelope",
        moments: Literal["float32", "bfloat16"] = "float32",
        seed: int = 0,
        rounding: str = "stochastic",
        round_to: Mapping[str, torch.dtype] | None = None,
        kernels: Kernels = "auto",
    ) -> None:
        options: dict[str, Any] = {
            "lr": lr,
            "rank": rank,
            "scale": scale,
            "betas": betas,
            "eps": eps,
            "moments": moments,
        }
        options |= {"weight_decay": weight_decay, "gap": gap, "gamma": gamma, "limiter_rule": limiter_rule}
        options["rounding"] = rounding
        super().__init__(params, options, seed, round_to)
        self._triton = triton_backend(kernels, next(iter(self._named)).device)
        self._backend = self._triton or self._backend

    @torch.no_grad()
    def warm_up(self) -> None:
        """Launch every kernel once for each kind of parameter, on a gradient of zeros, which they skip: for a matrix on
        its first rows, since kernels do not depend on their number; if its gradient may come in rows, also on one row.
        """
        if self._triton is None:
            return
        kinds = {_launch(named, parameter): parameter for parameter, named in self._named.items()}
        for parameter in kinds.values():
            matrix = summed_dim(parameter, self._named[parameter].group["rank"]) is not None
            zeros = torch.zeros_like(parameter[:WARM_UP_ROWS] if matrix else parameter)
            gradients: list[Tensor | RowGradient] = [zeros]
            if parameter.shape[0] > BLOCK_ROWS and self.takes_rows(parameter):
                row = torch.zeros(1, dtype=torch.int64, device=parameter.device)
                gradients.append(SparseRows(parameter.shape, row, zeros[:1]))
            for gradient in gradients:
                step = self._triton.open(self._next_step, self._seed, self._named.values(), self.param_groups)
                step.update(self._named[parameter], parameter.data, gradient, self.state[parameter], None)
        step.report()

    def _in_range(self, group: Mapping[str, Any]) -> dict[str, bool]:
        return super()._in_range(group) | {
            "rank": group["rank"] >= 1,
            "scale": group["scale"] in ("channel", "tensor"),
            "betas": all(0 <= beta < 1 for beta in group["betas"]),
            "eps": group["eps"] > 0,
            "gap": group["gap"] >= 1,
            "gamma": group["gamma"] >= 1,
            "limiter_rule": group["limiter_rule"] in FALL,
            "moments": group["moments"] in ("float32", "bfloat16"),
        }

    def _new_state(self, parameter: Tensor, group: Mapping[str, Any]) -> dict[str, Tensor]:
        shape, summed = list(parameter.shape), summed_dim(parameter, group["rank"])
        if summed is None:
            return moment_store.new(shape, group["moments"], parameter.device)
        shape[summed] = group["rank"]
        # infinite: the first update is not limited
        norm = torch.full((), math.inf, dtype=torch.float64, device=parameter.device)
        return moment_store.new(shape, group["moments"], parameter.device) | {"norm": norm}

    def takes_rows(self, parameter: Tensor) -> bool:
        """True for bf16 matrices whose rows are channels."""
        if not self._rows_will_do(parameter):
            return False
        return summed_dim(parameter, self._named[parameter].group["rank"]) == 1

    def _apply(self, step: ParameterStep, gradient: Tensor) -> Norms:
        summed = summed_dim(gradient, step.group["rank"])
        if summed is None:
            return adam_update(step, gradient, float(step.group["eps"]))
        return update_matrix(step, gradient, summed)

    def _apply_rows(self, step: ParameterStep, gradient: RowGradient) -> Norms:
        return update_rows(step, gradient)


def _launch(named: NamedParameter, parameter: Tensor) -> tuple[Any, ...]:
    """The key by which Triton compiles variants: shape, dtypes, options, and alignment of the memory to 16 bytes."""
    return parameter.shape, parameter.dtype, named.round_to, id(named.group), parameter.data_ptr() % 16
