"""The rounded weight write: w = round(w * decay + coef * u), in place, stochastic by default.

Why stochastic: at a learning rate of 1e-5 an update is far below half a bf16 ulp and nearest rounding loses it;
rounding up with a probability equal to the lost fraction keeps it in expectation (arXiv:2010.06192, arXiv:2502.20566).

Law of this file: the noise of an element is a pure function of the key and of its index in the parameter (C order), 16
bits each, one 32-bit hash for two neighbours. A result never depends on blocks, threads, devices or the order of
parameters. The arithmetic is float32 with each product and the sum rounded on its own (no fused multiply-add).
`write_reference_` defines it; the compiled kernels give the same bits.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from apollod.trainer.kernels.passes import compiled_passes
from apollod.trainer.optim.projector import BLOCK_ELEMENTS, as_words, random_words

Rounding = Literal["stochastic", "nearest"]
"""Rounding of one write. The third choice of an optimizer, "master", writes a float32 copy and rounds that: see
named_optimizer.py."""


def noise(key: int, first: int, count: int, device: torch.device | str = "cpu") -> Tensor:
    """Noise of elements first .. first+count-1: int32 [count] in 0 .. 65535."""
    start = first // 2
    words = random_words(key, start, (first + count + 1) // 2 - start, device)
    halves = words.view(torch.int16)[first % 2 : first % 2 + count]  # little-endian: low half is the even element
    return halves.to(torch.int32).bitwise_and_(0xFFFF)


def stochastic_round(values: Tensor, key: int, first: int = 0) -> Tensor:
    """float32 values [...] rounded to one of their two bf16 neighbours, as float32; unbiased. NaN and infinity are
    kept.

    Adds 16 random bits below the last kept one and truncates: the carry has exactly the probability of the fraction.
    `first` is the index of values[0] in the parameter.
    """
    bits = values.contiguous().view(torch.int32)
    added = bits + noise(key, first, values.numel(), values.device).view(values.shape)
    rounded = added.bitwise_and_(-0x10000).view(torch.float32)
    return torch.where(values.isnan(), values, rounded)  # a carry could turn a NaN into -0.0


def write_update_(
    weight: Tensor,
    update: Tensor,
    coef: Tensor | float,
    decay: float,
    key: int,
    rounding: Rounding,
    round_to: torch.dtype,
    first: int = 0,
) -> None:
    """weight = round(weight * decay + coef * update) on the grid of `round_to`, in place.

    weight   contiguous bf16 or float32 [m, n], or of any shape where coef is a number
    update   bf16 or float32, contiguous, of the same shape
    coef     float32 [m, 1] (a row is a channel) or [1, n] (a column is a channel); a number: the same for all elements
    decay    1 - lr * weight_decay; counts in float32, that is in multiples of 6e-8
    key      `stream_key` of this parameter and step
    round_to torch.bfloat16, or torch.float32 for no rounding at all
    first    index of the first element in its parameter (C order)
    """
    options = (decay, key, rounding)
    if isinstance(coef, Tensor) and coef.dim() == 2:
        if round_to == torch.bfloat16 and _write_channels_compiled(weight, update, coef, first, *options):
            return
    else:
        weight, update, number = weight.view(-1), update.view(-1), float(coef)
        if round_to == torch.bfloat16 and _write_elements_compiled(weight, update, first, number, *options):
            return
        weight, update = weight.unsqueeze(1), update.unsqueeze(1)
        coef = torch.full((1, 1), number, dtype=torch.float32, device=weight.device)
    write_reference_(weight, update, coef, *options, round_to, first)


def write_rows_(
    weight: Tensor, rows: Tensor, update: Tensor, coef: Tensor, decay: float, key: int, rounding: Rounding
) -> None:
    """`write_update_` for some rows of a bf16 matrix: int64 [k] ascending, update [k, n], coef float32 [k, 1]."""
    options = (decay, key, rounding)
    compiled, weight_words, update_words = compiled_passes(), as_words(weight), as_words(update)
    if compiled is not None and weight_words is not None and update_words is not None:
        compiled.write_rows(
            weight_words, update_words, coef.numpy().reshape(-1), rows.numpy(), 0, *kernel_options(*options)
        )
        return
    for i, row in enumerate(rows.tolist()):
        first = row * weight.shape[1]
        write_reference_(weight[row : row + 1], update[i : i + 1], coef[i : i + 1], *options, torch.bfloat16, first)


def write_reference_(
    weight: Tensor,
    update: Tensor,
    coef: Tensor,
    decay: float,
    key: int,
    rounding: Rounding,
    round_to: torch.dtype,
    first: int = 0,
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
            value = stochastic_round(value, key, first + start * n) if stochastic else value.to(torch.bfloat16)
        weight[part].copy_(value)


def _write_channels_compiled(
    weight: Tensor, update: Tensor, coef: Tensor, first: int, decay: float, key: int, rounding: Rounding
) -> bool:
    """The same write by a compiled kernel; False, with nothing written, if none applies."""
    compiled, weight_words, update_words = compiled_passes(), as_words(weight), as_words(update)
    if compiled is None or weight_words is None or update_words is None:
        return False
    if coef.shape[1] == 1:
        rows = np.arange(len(weight_words))
        compiled.write_rows(
            weight_words, update_words, coef.numpy().reshape(-1), rows, first, *kernel_options(decay, key, rounding)
        )
    else:
        pairs = np.ascontiguousarray(coef.numpy().reshape(-1, 2).T)
        compiled.write_columns(weight_words, update_words, pairs, first, *kernel_options(decay, key, rounding))
    return True


def _write_elements_compiled(
    weight: Tensor, update: Tensor, first: int, coef: float, decay: float, key: int, rounding: Rounding
) -> bool:
    """Like `_write_channels_compiled`, for flat tensors with one coefficient, also float32 weights."""
    compiled, words = compiled_passes(), as_words(weight) if first % 2 == 0 else None
    if compiled is None or not weight.is_cpu or (words is None and weight.dtype != torch.float32):
        return False
    arrays = (weight.numpy() if words is None else words, update.float().numpy())
    write = compiled.write_floats if words is None else compiled.write_elements
    write(*arrays, first, coef, *kernel_options(decay, key, rounding))
    return True


def kernel_options(decay: float, key: int, rounding: Rounding) -> tuple[float, int, int, bool]:
    """The last arguments of every compiled write."""
    return decay, key & 0xFFFFFFFF, key >> 32, rounding == "stochastic"
