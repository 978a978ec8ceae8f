"""Compiled CPU passes over bf16 memory: channel norms, the rounded weight write, the fingerprint sums.

Law of this file: one thread, a fixed order and no fast-math, so that a result never depends on thread count,
vector width or machine. Two bf16 values travel as one little-endian uint32 word (low half = even element), so that
every lane of a vector carries two elements. Callers import this module inside functions, because numba is slow to
import; without numba `AVAILABLE` is false and they take the eager path, which gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

try:
    import numba  # type: ignore[import-untyped]
except ImportError:
    numba = None

AVAILABLE = numba is not None

f32, f64, u32, u64 = np.float32, np.float64, np.uint32, np.uint64
Array = np.ndarray[Any, Any]

LANES = 32  # independent sums of a row norm: enough to fill vector registers without fast-math


def _jit(function: Callable[..., Any]) -> Any:
    """Compile `function`, with the machine code cached on disk where a cache directory is writable."""
    if numba is None:
        return function
    try:
        return numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # "no locator available": read-only installation and no home directory
        return numba.njit(nogil=True)(function)


@_jit
def _low(word):  # type: ignore[no-untyped-def]
    """float32 value of a word's even bf16 element."""
    return u32(word << u32(16)).view(f32)


@_jit
def _high(word):  # type: ignore[no-untyped-def]
    """float32 value of a word's odd bf16 element."""
    return u32(word & u32(0xFFFF0000)).view(f32)


@_jit
def _noise(index, key_low, key_high):  # type: ignore[no-untyped-def]
    """32 random bits; the same function as `projector.random_words`. Every step is cast, else numba widens to 64 bits."""
    x = u32(u32(u32(u32(index) * u32(0x9E3779B1)) + key_low) ^ key_high)
    x = u32(u32(x ^ u32(x >> u32(16))) * u32(0x7FEB352D))
    x = u32(u32(x ^ u32(x >> u32(15))) * u32(0x846CA68B))
    return u32(x ^ u32(x >> u32(16)))


@_jit
def _round(value, noise, stochastic):  # type: ignore[no-untyped-def]
    """Bits of `value` rounded to the bf16 grid, in the high half; NaN is kept, infinity cannot carry."""
    bits = f32(value).view(u32)
    nearest_even = u32(u32(0x7FFF) + u32(u32(bits >> u32(16)) & u32(1)))
    rounded = u32(u32(bits + (noise if stochastic else nearest_even)) & u32(0xFFFF0000))
    return u32(0x7FC00000) if u32(bits & u32(0x7FFFFFFF)) > u32(0x7F800000) else rounded


@_jit
def _merge(low, high, noise, stochastic):  # type: ignore[no-untyped-def]
    """One word from two float32 values: 16 noise bits for each."""
    even = _round(low, u32(noise & u32(0xFFFF)), stochastic)
    odd = _round(high, u32(noise >> u32(16)), stochastic)
    return u32(odd | u32(even >> u32(16)))


@_jit
def row_square_norms(words: Array, out: Array) -> None:
    """out[i] = sum_j g[i, j]^2. words uint32 [m, n/2] (bf16 g [m, n]), out float64 [m].

    A bf16 square is exact in float32, and float64 sums make the order of addition invisible after rounding.
    """
    rows, columns = words.shape
    blocks = columns // LANES
    lanes = np.zeros(LANES)
    for i in range(rows):
        lanes[:] = 0.0
        body = words[i, : blocks * LANES].reshape(blocks, LANES)
        for b in range(blocks):
            for k in range(LANES):
                low, high = _low(body[b, k]), _high(body[b, k])
                lanes[k] += f64(low * low) + f64(high * high)
        total = lanes.sum()
        for word in words[i, blocks * LANES :]:
            low, high = _low(word), _high(word)
            total += f64(low * low) + f64(high * high)
        out[i] = total


@_jit
def column_square_norms(words: Array, out: Array) -> None:
    """out[0, j], out[1, j] = sum_i of the squared even and odd columns 2j, 2j+1. out float64 [2, n/2], starts at zero."""
    rows, columns = words.shape
    for i in range(rows):
        for j in range(columns):
            low, high = _low(words[i, j]), _high(words[i, j])
            out[0, j] += f64(low * low)
            out[1, j] += f64(high * high)


@_jit
def write_rows(weight, update, coef, decay, key_low, key_high, stochastic):  # type: ignore[no-untyped-def]
    """w = round(w * decay + coef[i] * u), in place. weight, update uint32 [m, n/2] (bf16 [m, n]), coef float32 [m]."""
    rows, columns = weight.shape
    for i in range(rows):
        scale = coef[i]
        first = u32(i * columns)
        for j in range(columns):
            w, u = weight[i, j], update[i, j]
            low = _low(w) * decay + scale * _low(u)
            high = _high(w) * decay + scale * _high(u)
            weight[i, j] = _merge(low, high, _noise(u32(first + u32(j)), key_low, key_high), stochastic)


@_jit
def write_columns(weight, update, coef, decay, key_low, key_high, stochastic):  # type: ignore[no-untyped-def]
    """w = round(w * decay + coef[:, j] * u), in place. coef float32 [2, n/2]: even columns, then odd columns."""
    rows, columns = weight.shape
    for i in range(rows):
        first = u32(i * columns)
        for j in range(columns):
            w, u = weight[i, j], update[i, j]
            low = _low(w) * decay + coef[0, j] * _low(u)
            high = _high(w) * decay + coef[1, j] * _high(u)
            weight[i, j] = _merge(low, high, _noise(u32(first + u32(j)), key_low, key_high), stochastic)


@_jit
def write_elements(weight, update, coef, decay, key_low, key_high, stochastic):  # type: ignore[no-untyped-def]
    """w = round(w * decay + coef * u), in place. weight uint32 [n/2] (bf16 [n]), update float32 [n], coef float32."""
    for j in range(weight.size):
        low = _low(weight[j]) * decay + coef * update[2 * j]
        high = _high(weight[j]) * decay + coef * update[2 * j + 1]
        weight[j] = _merge(low, high, _noise(u32(j), key_low, key_high), stochastic)


@_jit
def fingerprint_sums(words: Array) -> tuple[np.uint64, np.uint64]:
    """(sum_j w_j, sum_j j * w_j) modulo 2^64 of uint32 words [n]."""
    total, weighted = u64(0), u64(0)
    for j in range(words.size):
        word = u64(words[j])
        total += word
        weighted += u64(j) * word
    return total, weighted


def warm_up() -> None:
    """Compile every kernel (seconds once, then from the disk cache), so that the first step is not slow."""
    words = np.zeros((2, 2), u32)
    row_square_norms(words, np.zeros(2))
    column_square_norms(words, np.zeros((2, 2)))
    fingerprint_sums(words.ravel())
    for kernel, weight, update, coef in (
        (write_rows, words, words.copy(), np.zeros(2, f32)),
        (write_columns, words, words.copy(), np.zeros((2, 2), f32)),
        (write_elements, words.ravel(), np.zeros(8, f32), f32(0)),
    ):
        kernel(weight, update, coef, f32(1), u32(0), u32(0), True)
