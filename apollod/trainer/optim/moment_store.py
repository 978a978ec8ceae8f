"""Stores moments between steps: float32, bfloat16 with its own rounding, or 8 bits a value.

The formulas see float32 only. bfloat16 is rounded stochastically, whatever the weights' rounding: to the nearest, v (1
- b2) + b2 v is v again at b2 = 0.999, so a second moment would never decay. 8 bits: blocks of 256 values with one
float32 scale each and a dynamic code (arXiv:2110.02861), by bitsandbytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any, Literal

import torch
from torch import Tensor

from apollod.errors import ApolloError
from apollod.trainer.optim.rounding import write_update_

Moments = Literal["float32", "bfloat16", "8bit"]

QUANTIZED_BLOCK = 256  # values with one scale; BLOCK_ELEMENTS is a multiple, so that working blocks do not split it
QUANTIZED_MIN = (
    4096  # a smaller parameter keeps float32 (bitsandbytes does, too): norms and biases are few and sensitive
)


class QuantizerMissing(ApolloError, ImportError):
    """8-bit state was requested without bitsandbytes."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"8-bit optimizer state needs the package bitsandbytes, which cannot be imported ({reason})",
            'run `pip install bitsandbytes`, or set [trainer] optimizer = "adamw" '
            '(with moments = "bfloat16": half the state)',
        )


def new(shape: list[int], kind: Moments, device: torch.device) -> dict[str, Tensor]:
    """Moments of zero. float32, bfloat16: m, v of this shape. 8bit: m, v uint8 [n], their scales float32 [n / 256
    rounded up]."""
    size = torch.Size(shape).numel()
    if kind == "8bit" and size >= QUANTIZED_MIN:
        scales = -(-size // QUANTIZED_BLOCK)
        codes = {name: torch.zeros(size, dtype=torch.uint8, device=device) for name in "mv"}
        return codes | {f"{name}_scale": torch.zeros(scales, dtype=torch.float32, device=device) for name in "mv"}
    dtype = torch.bfloat16 if kind == "bfloat16" else torch.float32
    return {name: torch.zeros(shape, dtype=dtype, device=device) for name in "mv"}


def load(state: Mapping[str, Tensor], part: slice | None) -> dict[str, Tensor]:
    """`state` with float32 m and v: the same tensors if they are float32, else copies. With `part`, flat and only these
    elements."""
    return {**state, **{name: _load(state, name, part) for name in "mv"}}


def save(state: Mapping[str, Tensor], wide: Mapping[str, Tensor], part: slice | None, keys: Mapping[str, int]) -> None:
    """Store m and v of `wide`, from `load`; `keys`: for the noise of bfloat16 m and v."""
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


def _load(state: Mapping[str, Tensor], name: str, part: slice | None) -> Tensor:
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
