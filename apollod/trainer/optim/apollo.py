"""APOLLO: AdamW's learning rates, one a channel, estimated from a low-rank projection of the gradient. Written from the
formulas of arXiv:2412.05270 (and of arXiv:2410.01623 for the limiter).

For a weight W [m, n] of rank r, with m >= n (rows are channels; otherwise the same with sides swapped) and gradient G:

    R  = G P                        P [n, r] of +-1/sqrt(r), rebuilt from (seed, name, step // gap)
    M  = b1 M + (1 - b1) R          V = b2 V + (1 - b2) R*R            Rt = M / (sqrt(V) + eps)
    s  = |Rt_c| / (|R_c| + 1e-8)    a channel ("channel"), or with Frobenius norms one for all ("tensor")
    U  = diag(s) G                  |U|^2 = sum_c s_c^2 |G_c|^2, so that U never has to exist
    L  = max(|U| / (prev + 1e-8) / gamma, 1)                           prev: the limiter's norm, see moments.py
    W  = round(W (1 - lr wd) - lr sqrt(1 - b2^t) / (1 - b1^t) sqrt(n / r) U / L)

sqrt(n / r) makes lr an AdamW lr: a projection to r of n dimensions shrinks s by sqrt(r / n). A parameter that is not
2-D, or whose smaller side is below the rank, uses Adam (adamw.py) with the same betas and eps.

The class, with options, state and the choice of the back end, comes first; then one update of one matrix, from its
gradient to its weight.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, Self

import torch
from torch import Tensor

from apollod.core.settings import Kernels, OptimizerSettings
from apollod.trainer.kernels.passes import CompiledPasses, compiled_passes
from apollod.trainer.optim.adamw import adam_update, bias_correction
from apollod.trainer.optim.moments import (
    FALL,
    NORM_EPSILON,
    SQUARES,
    LimiterRule,
    Norms,
    direction_,
    new_moments,
    next_norm,
)
from apollod.trainer.optim.named_optimizer import Named, NamedOptimizer
from apollod.trainer.optim.open_step import Backend, NamedParameter, OptimizerError, ParameterStep
from apollod.trainer.optim.projector import project, project_rows, square_norms, stream_key, summed_dim, unscaled
from apollod.trainer.optim.row_gradient import BLOCK_ROWS, RowGradient, SparseRows

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
    limiter_rule  "envelope" | "growth": which norm it grows from; see moments.py
    moments       "float32" | "bfloat16": see moments.py
    kernels       "auto": on a GPU Triton's if it is installed (apollo_triton.py: a step then waits for the device once,
                  in `finish`), else the eager path, which is their oracle. The bits of a step depend on which it is

    State: m, v [m, r] or [r, n] and norm float64 [] (moments.py); of Adam's parameters m, v of the parameter's shape.
    """

    NAME = "apollo"
    SHAPING = ("rank", "moments")
    DEPENDS_ON = ("rank", "scale", "seed", "moments")
    KERNELS = True

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
        options = {
            "lr": lr, "rank": rank, "scale": scale, "betas": betas, "eps": eps, "moments": moments,
            "weight_decay": weight_decay, "gap": gap, "gamma": gamma, "limiter_rule": limiter_rule,
            "rounding": rounding,
        }  # fmt: skip
        super().__init__(params, options, seed, round_to)
        self._triton = _triton_backend(kernels, next(iter(self._named)).device)
        self._backend = self._triton or self._backend

    @classmethod
    def from_settings(cls, settings: OptimizerSettings, params: Sequence[tuple[str, Tensor]], **common: Any) -> Self:
        matrices = {name: parameter for name, parameter in params if parameter.dim() == 2}
        if matrices and all(summed_dim(parameter, settings.rank) is None for parameter in matrices.values()):
            widest = max(matrices, key=lambda name: min(matrices[name].shape))
            raise OptimizerError(
                f"rank = {settings.rank} is above the smaller side of every matrix (the widest: {widest} "
                f"{list(matrices[widest].shape)})",
                'lower [trainer] rank, or set optimizer = "adamw"',
            )
        return cls(
            params, rank=settings.rank, scale=settings.scale, betas=settings.betas, moments=settings.moments,
            gamma=settings.limiter or math.inf, limiter_rule=settings.limiter_rule, **common,
        )  # fmt: skip

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
                step = self._triton(self._next_step, self._seed, self._named.values(), self.param_groups)
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
            return new_moments(shape, group["moments"], parameter.device)
        shape[summed] = group["rank"]
        # infinite: the first update is not limited
        norm = torch.full((), math.inf, dtype=torch.float64, device=parameter.device)
        return new_moments(shape, group["moments"], parameter.device) | {"norm": norm}

    def takes_rows(self, parameter: Tensor) -> bool:
        """True for bf16 matrices whose rows are channels."""
        takes = super().takes_rows(parameter)
        return takes and summed_dim(parameter, self._named[parameter].group["rank"]) == 1

    def _apply(self, step: ParameterStep, gradient: Tensor | RowGradient) -> Norms:
        if isinstance(gradient, RowGradient):
            return update_rows(step, gradient)
        summed = summed_dim(gradient, step.group["rank"])
        if summed is None:
            return adam_update(step, gradient, float(step.group["eps"]))
        return update_matrix(step, gradient, summed)


def _triton_backend(kernels: Kernels, device: torch.device) -> Backend | None:
    """APOLLO's updates in Triton, which is imported only then; None if `kernels` and the device call for the formulas.
    Raises OptimizerError if Triton is required and cannot be used."""
    if kernels == "eager" or (kernels == "auto" and (device.type != "cuda" or find_spec("triton") is None)):
        return None
    try:
        make: Callable[[torch.device], Backend] = import_module("apollod.trainer.optim.apollo_triton").device_steps
    except ImportError as error:
        raise OptimizerError(
            f"Triton cannot be imported ({error})", 'run `pip install triton`, or choose kernels = "eager"'
        ) from error
    return make(device)


def _launch(named: NamedParameter, parameter: Tensor) -> tuple[Any, ...]:
    """The key by which Triton compiles variants: shape, dtypes, options, and alignment of the memory to 16 bytes."""
    return parameter.shape, parameter.dtype, named.round_to, id(named.group), parameter.data_ptr() % 16


# --- one update of one matrix -------------------------------------------------------------------------------------


def update_matrix(step: ParameterStep, gradient: Tensor, summed: int) -> Norms:
    """Update weight, moments and limiter. `summed`: see `projector.summed_dim`. The norm is that of U / L with its
    corrections."""
    rank, key = step.group["rank"], _projection_key(step)
    if compiled := step.one_call(gradient):  # all of the following
        return _in_one_call(compiled, step, gradient, key, summed)
    low_rank, squares = project(gradient, key, rank), square_norms(gradient, summed)  # R, |G_c|^2
    coef, norms = _rates(step, low_rank, squares, summed)  # M, V, s, L
    if coef is not None:
        step.write(gradient, coef)  # W
    return norms


def _in_one_call(compiled: CompiledPasses, step: ParameterStep, gradient: Tensor, key: int, summed: int) -> Norms:
    group, state, factor = step.group, step.state, _factor(step, summed)
    product = unscaled(gradient, key, group["rank"])
    addresses = [x.data_ptr() for x in (step.weight, gradient, product, state["m"], state["v"], state["norm"])]
    with step.kept(step.weight):
        grad_square, update = compiled.apollo_step(
            *addresses, *gradient.shape, group["rank"], summed == 1, group["scale"] == "tensor", *_moments(group),
            -group["lr"] * factor, float(group["gamma"]), FALL[group["limiter_rule"]], NORM_EPSILON,
            *step.rounding_options, *SQUARES,
        )  # fmt: skip
    return Norms(grad_square, update * factor)


def update_rows(step: ParameterStep, gradient: RowGradient) -> Norms:
    """`update_matrix`, with the same bits, for a gradient in rows that are channels. Each row can be projected, scaled
    and written by itself. Only the limiter needs all of them, so the rows are requested twice."""
    rank, key, channels, device = step.group["rank"], _projection_key(step), gradient.shape[0], step.weight.device
    low_rank = torch.zeros(channels, rank, device=device)
    squares = torch.zeros(channels, dtype=torch.float64, device=device)
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
