"""The rounded weight write: w = round(w * decay + coef * u), in place, stochastic by default.

Why stochastic: at a learning rate of 1e-5 an update is far below half a bf16 ulp and nearest rounding loses it; rounding up
with a probability equal to the lost fraction keeps it in expectation (arXiv:2010.06192, arXiv:2502.20566).

Law of this file: the noise of an element is a pure function of the key and of its index in the parameter (C order), 16 bits
each, one 32-bit hash for two neighbours. A result never depends on blocks, threads, devices or the order of parameters.
The arithmetic is float32 with each product and the sum rounded on its own (no fused multiply-add). `write_reference_`
defines it; the compiled kernels give the same bits.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from apollod.trainer.projector import BLOCK_ELEMENTS, as_words, random_words

Rounding = Literal["stochastic", "nearest"]


def noise(key: int, first: int, count: int, device: torch.device | str = "cpu") -> Tensor:
    """Noise of elements first .. first+count-1: int32 [count] in 0 .. 65535."""
    start = first // 2
    words = random_words(key, start, (first + count + 1) // 2 - start, device)
    halves = words.view(torch.int16)[first % 2 : first % 2 + count]  # little-endian: low half is the even element
    return halves.to(torch.int32).bitwise_and_(0xFFFF)


def stochastic_round(values: Tensor, key: int, first: int = 0) -> Tensor:
    """float32 values [...] rounded to one of their two bf16 neighbours, as float32; unbiased. NaN and infinity are kept.

    Adds 16 random bits below the last kept one and truncates: the carry has exactly the probability of the fraction.
    `first` is the index of values[0] in the parameter.
    """
    bits = values.contiguous().view(torch.int32)
    added = bits + noise(key, first, values.numel(), values.device).view(values.shape)
    rounded = added.bitwise_and_(-0x10000).view(torch.float32)
    return torch.where(values.isnan(), values, rounded)  # a carry could turn a NaN into -0.0


def write_update_(
    weight: Tensor, update: Tensor, coef: Tensor, decay: float, key: int, rounding: Rounding, round_to: torch.dtype
) -> None:
    """weight = round(weight * decay + coef * update) on the grid of `round_to`, in place.

    weight   contiguous bf16 or float32 [m, n], or of any shape where coef is a scalar
    update   bf16 or float32, contiguous, of the same shape
    coef     float32 [m, 1] (a row is a channel), [1, n] (a column is a channel) or [] (element-wise)
    decay    1 - lr * weight_decay; counts in float32, that is in multiples of 6e-8
    key      `stream_key` of this parameter and step
    round_to torch.bfloat16, or torch.float32 for no rounding at all
    """
    if coef.dim() == 0:
        weight, update = weight.view(-1), update.view(-1)
    if round_to == torch.bfloat16 and _write_compiled(weight, update, coef, decay, key, rounding):
        return
    if coef.dim() == 0:
        weight, update, coef = weight.unsqueeze(1), update.unsqueeze(1), coef.view(1, 1)
    write_reference_(weight, update, coef, decay, key, rounding, round_to)


def write_reference_(
    weight: Tensor,
    update: Tensor,
    coef: Tensor,
    decay: float,
    key: int,
    rounding: Rounding,
    round_to: torch.dtype,
    block: int = BLOCK_ELEMENTS,
) -> None:
    """The definition of `write_update_` in eager torch, for 2-D tensors on any device, in blocks of whole rows."""
    m, n = weight.shape
    coef = coef.expand(m, n)
    rows = max(1, block // max(1, n))
    for start in range(0, m, rows):
        part = slice(start, start + rows)
        value = weight[part].float() * decay + update[part].float() * coef[part]
        if round_to == torch.bfloat16:
            stochastic = rounding == "stochastic"
            value = stochastic_round(value, key, start * n) if stochastic else value.to(torch.bfloat16)
        weight[part].copy_(value)


def _write_compiled(weight: Tensor, update: Tensor, coef: Tensor, decay: float, key: int, rounding: Rounding) -> bool:
    """The same write by a compiled kernel; False, with nothing written, where none applies."""
    words = as_words(weight)
    if words is None:
        return False
    from apollod.trainer import kernels_cpu

    if not kernels_cpu.AVAILABLE:
        return False
    options = (np.float32(decay), np.uint32(key & 0xFFFFFFFF), np.uint32(key >> 32), rounding == "stochastic")
    if coef.dim() == 0:
        kernels_cpu.write_elements(words, update.float().numpy(), np.float32(coef.item()), *options)
        return True
    update_words = as_words(update)
    if update_words is None:
        return False
    if coef.shape[1] == 1:
        kernels_cpu.write_rows(words, update_words, coef.flatten().numpy(), *options)
    else:
        pairs = np.ascontiguousarray(coef.view(-1, 2).t().numpy())
        kernels_cpu.write_columns(words, update_words, pairs, *options)
    return True
