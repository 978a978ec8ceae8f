"""Moments of Adam and APOLLO: the norms that a step reports, the formula, the norm-growth limiter, and how moments are
stored between steps.

Law of this file: eager torch defines the values, on any device; the compiled kernels give the same float32 bits.
Products and sums are separate operations (`lerp_`, `add_(alpha=)` and `addcmul_` fuse them on some machines only).
Norms are float64 sums of float32 squares, so that their order does not affect the float32 result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from apollod.errors import ApolloError
from apollod.trainer.kernels.passes import compiled_passes
from apollod.trainer.optim.rounding import write_update_
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


# --- the norm-growth limiter of APOLLO ----------------------------------------------------------------------------
#
#     L    = max(|U| / (prev + 1e-8) / gamma, 1)       prev: state `norm`, one number for each parameter
#     prev = |U| / L                          "growth": the paper's (arXiv:2410.01623)
#     prev = max(|U| / L, FALL prev)          "envelope"
#
# The epsilons of APOLLO make the update of a nearly memorised example far smaller than its neighbours (|G| = 1e-7 over
# 4096 channels: 12 %). By the paper's rule the next ordinary update starts from there and wins back 1 % a step. The
# envelope falls by FALL at most, so one such update changes no later one by more than 1 - FALL; as long as no update
# falls that far below the one before, both rules give the same bits.

LimiterRule = Literal["envelope", "growth"]

FALL: dict[str, float] = {"growth": 0.0, "envelope": 0.97}
"""Least remaining share of the compared norm after one update, by rule. Part of the bits of a step."""


def next_norm(update: float, previous: float, fall: float) -> float:
    """`prev` after an update with |U| / L = `update`; `previous` is infinite before the first one.

    An update of zero says nothing about growth, and would hold all later ones near zero.
    """
    if not update > 0:
        return previous
    return update if math.isinf(previous) else max(update, previous * fall)


# --- moments between steps: float32, bfloat16 with its own rounding, or 8 bits a value ----------------------------
#
# The formulas see float32 only. bfloat16 is rounded stochastically, whatever the weights' rounding: to the nearest,
# v (1 - b2) + b2 v is v again at b2 = 0.999, so a second moment would never decay. 8 bits: blocks of 256 values with
# one float32 scale each and a dynamic code (arXiv:2110.02861), by bitsandbytes.

Moments = Literal["float32", "bfloat16", "8bit"]

QUANTIZED_BLOCK = 256  # values with one scale; BLOCK_ELEMENTS is a multiple, so that working blocks do not split it
QUANTIZED_MIN = 4096
"""A smaller parameter keeps float32 (bitsandbytes does, too): norms and biases are few and sensitive."""


class QuantizerMissing(ApolloError, ImportError):
    """8-bit state was requested without bitsandbytes."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"8-bit optimizer state needs the package bitsandbytes, which cannot be imported ({reason})",
            'run `pip install bitsandbytes`, or set [trainer] optimizer = "adamw" '
            '(with moments = "bfloat16": half the state)',
        )


def new_moments(shape: list[int], kind: Moments, device: torch.device) -> dict[str, Tensor]:
    """Moments of zero. float32, bfloat16: m, v of this shape. 8bit: m, v uint8 [n], their scales float32 [n / 256
    rounded up]."""
    size = torch.Size(shape).numel()
    if kind == "8bit" and size >= QUANTIZED_MIN:
        scales = -(-size // QUANTIZED_BLOCK)
        codes = {name: torch.zeros(size, dtype=torch.uint8, device=device) for name in "mv"}
        return codes | {f"{name}_scale": torch.zeros(scales, dtype=torch.float32, device=device) for name in "mv"}
    dtype = torch.bfloat16 if kind == "bfloat16" else torch.float32
    return {name: torch.zeros(shape, dtype=dtype, device=device) for name in "mv"}


def load_moments(state: Mapping[str, Tensor], part: slice | None) -> dict[str, Tensor]:
    """`state` with float32 m and v: the same tensors if they are float32, else copies. With `part`, flat and only these
    elements."""
    return {**state, **{name: _loaded(state, name, part) for name in "mv"}}


def save_moments(
    state: Mapping[str, Tensor], wide: Mapping[str, Tensor], part: slice | None, keys: Mapping[str, int]
) -> None:
    """Store m and v of `wide`, from `load_moments`; `keys`: for the noise of bfloat16 m and v."""
    first = 0 if part is None else part.start
    for name in "mv":
        kept = state[name] if part is None else state[name].view(-1)[part]
        if kept.dtype == torch.bfloat16:
            write_update_(kept, wide[name], 1.0, 0.0, keys[name], "stochastic", torch.bfloat16, first)
        elif kept.dtype == torch.uint8:
            codes, quantized = quantizer().quantize_blockwise(
                wide[name], code=_code(name, kept.device), blocksize=QUANTIZED_BLOCK
            )
            kept.copy_(codes)
            _scales(state, name, part).copy_(quantized.absmax)


def _loaded(state: Mapping[str, Tensor], name: str, part: slice | None) -> Tensor:
    kept = state[name] if part is None else state[name].view(-1)[part]
    if kept.dtype != torch.uint8:
        return kept.float()
    scales = _scales(state, name, part)
    wide: Tensor = quantizer().dequantize_blockwise(
        kept, absmax=scales, code=_code(name, kept.device), blocksize=QUANTIZED_BLOCK
    )
    return wide


def _scales(state: Mapping[str, Tensor], name: str, part: slice | None) -> Tensor:
    scales = state[f"{name}_scale"]
    return scales if part is None else scales[part.start // QUANTIZED_BLOCK : -(-part.stop // QUANTIZED_BLOCK)]


@cache
def quantizer() -> Any:
    """bitsandbytes.functional; raises QuantizerMissing."""
    try:
        return import_module("bitsandbytes.functional")
    except Exception as error:  # a broken installation raises more than ImportError
        raise QuantizerMissing(str(error)) from error


@cache
def _code(name: str, device: torch.device) -> Tensor:
    """The 256 values of the code, float32 in [-1, 1]; for the second moment in [0, 1]."""
    code: Tensor = quantizer().create_dynamic_map(signed=name == "m").to(device)
    return code
