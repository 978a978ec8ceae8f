"""APOLLO: AdamW's learning rates, one a channel, estimated from a low-rank projection of the gradient.

Written from the formulas of arXiv:2412.05270 (and of arXiv:2410.01623 for the limiter). For a weight W [m, n] of rank r,
with m >= n (rows are channels; otherwise the same with sides swapped) and gradient G:

    R  = G P                        P [n, r] of +-1/sqrt(r), rebuilt from (seed, name, step // gap)
    M  = b1 M + (1 - b1) R          V = b2 V + (1 - b2) R*R            Rt = M / (sqrt(V) + eps)
    s  = |Rt_c| / (|R_c| + 1e-8)    a channel ("channel"), or with Frobenius norms one for all ("tensor")
    U  = diag(s) G                  |U|^2 = sum_c s_c^2 |G_c|^2, so that U never has to exist
    L  = max(|U| / (prev + 1e-8) / gamma, 1)                           prev = |U| / L
    W  = round(W (1 - lr wd) - lr sqrt(1 - b2^t) / (1 - b1^t) sqrt(n / r) U / L)

sqrt(n / r) makes lr an AdamW lr: a projection to r of n dimensions shrinks s by sqrt(r / n). A parameter that is not 2-D, or
whose smaller side is below r, takes Adam: U = M / (sqrt(V) + eps) of the gradient itself, no sqrt(n / r), no limiter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal

import torch
from torch import Tensor

from apollod.trainer import moment_store, whole_step
from apollod.trainer.adamw import adam_step, bias_correction
from apollod.trainer.moments import Norms, apollo_
from apollod.trainer.named_optimizer import Named, NamedOptimizer, OptimizerError
from apollod.trainer.parameter_step import ParameterStep
from apollod.trainer.projector import project, project_rows, square_norms, stream_key
from apollod.trainer.row_gradient import RowGradient
from apollod.wire.messages import Kernels

Scale = Literal["channel", "tensor"]


class Apollo(NamedOptimizer):
    """APOLLO with stochastically rounded bf16 weights; for other arguments and `rounding` see `NamedOptimizer`.

    lr            learning rate of an AdamW
    rank          r; 1 with scale="tensor" is APOLLO-Mini
    scale         "channel" | "tensor"
    betas, eps    of the moments. eps is added to sqrt(V) before bias correction
    weight_decay  decoupled; see `rounding.write_update_` for its granularity
    gap           steps for which a projection is kept. 1 would destroy momentum, because M would average unrelated sketches
    gamma         largest growth of an update's norm from step to step; math.inf switches the limiter off
    moments       "float32" | "bfloat16": see moment_store.py
    kernels       "auto": on a GPU Triton's where it is installed (apollo_cuda.py: a step then waits for the device once, in
                  `finish`), else the eager path, which is their oracle. The bits of a step depend on which it is

    State: m, v [m, r] or [r, n] and norm float64 [] (limiter); of Adam's parameters m, v of the parameter's shape.
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
        moments: Literal["float32", "bfloat16"] = "float32",
        seed: int = 0,
        rounding: str = "stochastic",
        round_to: Mapping[str, torch.dtype] | None = None,
        kernels: Kernels = "auto",
    ) -> None:
        options: dict[str, Any] = {"lr": lr, "rank": rank, "scale": scale, "betas": betas, "eps": eps, "moments": moments}
        options |= {"weight_decay": weight_decay, "gap": gap, "gamma": gamma, "rounding": rounding}
        super().__init__(params, options, seed, round_to)
        self._device_steps = _device_steps(kernels, next(iter(self._units)).device)

    def begin(self, step: int, lr: float | None = None) -> None:
        """As `NamedOptimizer.begin`. On a GPU the step's account is kept there, too."""
        super().begin(step, lr)
        if self._device_steps is not None:
            self._tally = self._device_steps(step, self._seed, self._units.values(), self.param_groups)

    def _update(self, parameter: Tensor, gradient: Tensor | RowGradient) -> None:
        if self._device_steps is None:
            super()._update(parameter, gradient)
            return
        step: Any = self._open()
        step.update(self._units[parameter], parameter.data, gradient, self.state[parameter], self.undo)

    @torch.no_grad()
    def warm_up(self) -> None:
        """Launch every kernel once for each kind of parameter, on a gradient of zeros, which they skip."""
        if self._device_steps is None:
            return
        kinds = {_launch(unit, parameter): parameter for parameter, unit in self._units.items()}
        step = self._device_steps(self._next_step, self._seed, self._units.values(), self.param_groups)
        for parameter in kinds.values():
            step.update(self._units[parameter], parameter.data, torch.zeros_like(parameter), self.state[parameter])
        step.report()

    def _in_range(self, group: Mapping[str, Any]) -> dict[str, bool]:
        return super()._in_range(group) | {
            "rank": group["rank"] >= 1,
            "scale": group["scale"] in ("channel", "tensor"),
            "betas": all(0 <= beta < 1 for beta in group["betas"]),
            "eps": group["eps"] > 0,
            "gap": group["gap"] >= 1,
            "gamma": group["gamma"] >= 1,
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
        """Of bf16 matrices whose rows are channels; not in Triton's kernels, which want the gradient whole."""
        group = self._units[parameter].group if parameter in self._units and self._hooks else None
        if group is None or self._device_steps is not None or parameter.dtype != torch.bfloat16:
            return False
        return summed_dim(parameter, group["rank"]) == 1

    def _apply(self, step: ParameterStep, gradient: Tensor) -> Norms:
        group = step.group
        rank, summed = group["rank"], summed_dim(gradient, group["rank"])
        if summed is None:
            return adam_step(step, gradient, float(group["eps"]))
        if whole_step.fits(step, gradient):
            factor = _factor(step, summed)
            norms = whole_step.apollo(step, gradient, _projection_key(step), -group["lr"] * factor, summed)
            return Norms(norms.grad_square, norms.update * factor)
        low_rank, squares = project(gradient, _projection_key(step), rank), square_norms(gradient, summed)
        coef, norms = _moments_(step, low_rank, squares, summed)
        if coef is not None:
            step.write(gradient, coef)
        return norms

    def _apply_rows(self, step: ParameterStep, gradient: RowGradient) -> Norms:
        """A row is a channel: it can be projected, scaled and written without the others. Only the limiter needs all of them,
        so the rows are asked for twice."""
        rank, key, channels, device = step.group["rank"], _projection_key(step), gradient.shape[0], step.weight.device
        low_rank, squares = torch.zeros(channels, rank, device=device), torch.zeros(channels, dtype=torch.float64, device=device)
        for rows, values in gradient.blocks():
            low_rank[rows], squares[rows] = project_rows(values, key, rank), square_norms(values, 1)
        coef, norms = _moments_(step, low_rank, squares, 1)
        del low_rank
        if coef is not None:
            for rows, values in gradient.every_block() if step.writes_all else gradient.blocks():
                step.write_rows(rows, values, coef[rows])
        return norms


def _projection_key(step: ParameterStep) -> int:
    return stream_key("projection", step.seed, step.name, step.number // step.group["gap"])


def _factor(step: ParameterStep, summed: int) -> float:
    return bias_correction(step) * math.sqrt(step.weight.shape[summed] / step.group["rank"])


def _moments_(step: ParameterStep, low_rank: Tensor, squares: Tensor, summed: int) -> tuple[Tensor | None, Norms]:
    """Update the moments and the limiter: the coefficients of the write as `moments.apollo_` gives them, and the norms. None,
    and no state changed, where the gradient is zero or not finite."""
    factor = _factor(step, summed)
    wide = step.moments()
    coef, norms = apollo_(low_rank, squares, -step.group["lr"] * factor, summed, wide, step.group)
    if norms.zero or norms.nonfinite:
        return None, norms
    step.keep(wide)
    return coef, Norms(norms.grad_square, norms.update * factor)


def _launch(unit: Any, parameter: Tensor) -> tuple[Any, ...]:
    """What Triton compiles once more for: shape, dtypes, options, and whether memory begins at a multiple of 16 bytes."""
    return parameter.shape, parameter.dtype, unit.round_to, id(unit.group), parameter.data_ptr() % 16


def _device_steps(kernels: Kernels, device: torch.device) -> Any:
    """`apollo_cuda.DeviceStep` of this device; None for the eager path."""
    if kernels == "eager" or (kernels == "auto" and (device.type != "cuda" or find_spec("triton") is None)):
        return None
    try:
        return import_module("apollod.trainer.apollo_cuda").device_steps(device)
    except ImportError as error:
        raise OptimizerError(f"Triton cannot be imported ({error})", 'run `pip install triton`, or choose kernels = "eager"') from error


def summed_dim(weight: Tensor, rank: int) -> int | None:
    """The dimension inside a channel, that is the smaller one, which is projected: 1 = rows are channels, 0 = columns are.
    None for what takes Adam: not 2-D, or a smaller side below the rank."""
    if weight.dim() != 2 or min(weight.shape) < rank:
        return None
    return 1 if weight.shape[0] >= weight.shape[1] else 0
