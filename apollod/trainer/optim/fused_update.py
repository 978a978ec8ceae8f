"""Updates a small parameter, from gradient to weight, in one compiled call: otherwise calls and torch operations on
little memory take most of the time. Same bits as the separate formulas, which handle all other cases."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from apollod.trainer.kernels.passes import CompiledPasses, compiled_passes
from apollod.trainer.optim import projector
from apollod.trainer.optim.limiter import FALL
from apollod.trainer.optim.moments import NORM_EPSILON, SQUARES, Norms
from apollod.trainer.optim.parameter_step import ParameterStep
from apollod.trainer.optim.projector import unscaled


def fits(step: ParameterStep, gradient: object) -> bool:
    """True for bf16 on CPU with float32 moments, rounded when written; at most a working block, of whole words."""
    if (
        not isinstance(gradient, Tensor)
        or gradient.numel() > projector.BLOCK_ELEMENTS
        or not gradient.dim()
        or gradient.shape[-1] % 2
    ):
        return False
    weight, state = step.weight, step.state
    if (
        not weight.is_cpu
        or weight.dtype != torch.bfloat16
        or gradient.dtype != torch.bfloat16
        or compiled_passes() is None
    ):
        return False
    return (
        state["m"].dtype == torch.float32
        and "master" not in state
        and (weight.data_ptr() | gradient.data_ptr()) % 4 == 0
    )


def adam(step: ParameterStep, gradient: Tensor, rate: float, eps: float) -> Norms:
    """W = round(W (1 - lr wd) + rate m / (sqrt(v) + eps)); the norm is that of m / (sqrt(v) + eps)."""
    addresses, (beta1, beta2) = _addresses(step.weight, gradient, step.state["m"], step.state["v"]), step.group["betas"]
    with step.kept(step.weight):
        grad_square, square = _compiled().adam_step(
            *addresses, gradient.numel(), float(beta1), float(beta2), eps, rate, *_rounding(step), *SQUARES
        )
    return Norms(grad_square, math.sqrt(square))


def apollo(step: ParameterStep, gradient: Tensor, projection_key: int, rate: float, summed: int) -> Norms:
    """Like `apollo_update.channel_rates_` and the following write; same arguments."""
    group, state, (beta1, beta2) = step.group, step.state, step.group["betas"]
    rank, (rows, columns) = group["rank"], gradient.shape
    product = unscaled(gradient, projection_key, rank)
    addresses = _addresses(step.weight, gradient, product, state["m"], state["v"], state["norm"])
    with step.kept(step.weight):
        grad_square, update = _compiled().apollo_step(
            *addresses, rows, columns, rank, summed == 1, group["scale"] == "tensor", float(beta1), float(beta2),
            float(group["eps"]),
            rate, float(group["gamma"]), FALL[group["limiter_rule"]], NORM_EPSILON, *_rounding(step), *SQUARES,
        )  # fmt: skip
    return Norms(grad_square, update)


def _compiled() -> CompiledPasses:
    passes = compiled_passes()
    assert passes is not None
    return passes


def _addresses(*tensors: Tensor) -> list[int]:
    return [tensor.data_ptr() for tensor in tensors]


def _rounding(step: ParameterStep) -> tuple[float, int, int, bool]:
    key = step.rounding_key
    return step.decay, key & 0xFFFFFFFF, key >> 32, step.group["rounding"] == "stochastic"
