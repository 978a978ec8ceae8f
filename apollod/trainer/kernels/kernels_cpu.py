"""Compiled CPU passes over bf16 memory (channel norms, the rounded weight write, the fingerprint sums), over float32
moments, and the signs of a projection.

Law of this file: one thread, a fixed order and no fast-math, so that a result never depends on thread count,
vector width or machine. Two bf16 values travel as one little-endian uint32 word (low half = even element), so that
every lane of a vector carries two elements. Callers import this module inside functions, because numba is slow to
import; without numba `AVAILABLE` is false and they take the eager path, which gives the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

try:
    import numba  # type: ignore[import-untyped]
    from llvmlite import ir  # type: ignore[import-untyped]
    from numba.extending import intrinsic  # type: ignore[import-untyped]
except ImportError:
    numba = None

AVAILABLE = numba is not None

f32, f64, i16, u16, u32, u64 = np.float32, np.float64, np.int16, np.uint16, np.uint32, np.uint64
Array = np.ndarray[Any, Any]

LANES = 32  # independent sums of a row norm: enough to fill vector registers without fast-math


def _jit(function: Callable[..., Any]) -> Any:
    """Compile `function`, with the machine code cached on disk where a cache directory is writable."""
    if numba is None:
        return function
    # error_model: a test for division by zero would keep a loop from being vectorized
    options = {"nogil": True, "error_model": "numpy"}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # "no locator available": read-only installation and no home directory
        return numba.njit(**options)(function)


if AVAILABLE:

    @intrinsic
    def _pointer(_context, _address):  # type: ignore[no-untyped-def]
        """An int64 as an address."""

        def generate(_target, builder, _signature, arguments):  # type: ignore[no-untyped-def]
            return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

        return numba.types.voidptr(numba.types.int64), generate


@_jit
def _array(address, shape, dtype):  # type: ignore[no-untyped-def]
    """Contiguous memory of a tensor. Passing arrays instead would take longer than the work on a small tensor."""
    return numba.carray(_pointer(address), shape, dtype)


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
    """32 random bits; the same function as `projector.random_words`. Every step is cast, else numba widens to 64
    bits."""
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
def _sign(word, bit):  # type: ignore[no-untyped-def]
    """bf16 bits of -1 where the bit of the word is set, else of 1."""
    return i16(u32(0x3F80) | u32(u32(u32(word >> bit) & u32(1)) << u32(15)))


@_jit
def row_square_norms(words: Array, out: Array) -> None:
    """out[i] = sum_j g[i, j]^2. words uint32 [m, n/2] (bf16 g [m, n]), out float64 [m].

    A bf16 square is exact in float32, and float64 sums make the order of addition invisible after rounding.
    """
    rows, columns = words.shape
    body = columns // LANES * LANES
    lanes = np.zeros(LANES)
    for i in range(rows):
        lanes[:] = 0.0
        for start in range(0, body, LANES):
            for k in range(LANES):
                low, high = _low(words[i, start + k]), _high(words[i, start + k])
                lanes[k] += f64(low * low) + f64(high * high)
        total = lanes.sum()
        for j in range(body, columns):
            low, high = _low(words[i, j]), _high(words[i, j])
            total += f64(low * low) + f64(high * high)
        out[i] = total


@_jit
def column_square_norms(words: Array, out: Array) -> None:
    """out[0, j], out[1, j] = sum_i of the squared even and odd columns 2j, 2j+1. out float64 [2, n/2], starts at
    zero."""
    rows, columns = words.shape
    for i in range(rows):
        for j in range(columns):
            low, high = _low(words[i, j]), _high(words[i, j])
            out[0, j] += f64(low * low)
            out[1, j] += f64(high * high)


@_jit
def signs(address, size, key_low, key_high):  # type: ignore[no-untyped-def]
    """out[k] = bits of the bf16 -1 where bit k of the stream is set, else of 1. out int16 [size] at this address."""
    out = _array(address, (size,), i16)
    low, high = u32(key_low), u32(key_high)
    whole = out.size // 32
    for index in range(whole):
        word = _noise(u32(index), low, high)
        for bit in range(32):
            out[32 * index + bit] = _sign(word, u32(bit))
    word = _noise(u32(whole), low, high)
    for bit in range(out.size % 32):
        out[32 * whole + bit] = _sign(word, u32(bit))


@_jit
def _direction(r, m, v, moments):  # type: ignore[no-untyped-def]
    """m, v updated with r, and r = m / (sqrt(v) + eps): float32 of one size, flat."""
    beta1, beta2, eps = moments
    b1, rest1, b2, rest2, epsilon = f32(beta1), f32(1 - beta1), f32(beta2), f32(1 - beta2), f32(eps)
    for i in range(r.size):
        m[i] = m[i] * b1 + r[i] * rest1
        v[i] = v[i] * b2 + r[i] * r[i] * rest2
        r[i] = m[i] / (math.sqrt(v[i]) + epsilon)


@_jit
def _square_sums(x, by_row, out):  # type: ignore[no-untyped-def]
    """out[c] = sum of the float32 squares of row or column c of x, float64."""
    rows, columns = x.shape
    out[:] = 0.0
    if not by_row:
        for i in range(rows):
            for j in range(columns):
                out[j] += f64(x[i, j] * x[i, j])
        return
    part = np.empty(columns)
    for i in range(rows):
        for j in range(columns):
            part[j] = f64(x[i, j] * x[i, j])
        size = columns
        while size > 8 and size % 2 == 0:  # halves are added as vectors
            size //= 2
            for j in range(size):
                part[j] += part[j + size]
        out[i] = part[:size].sum()


@_jit
def square_sum(x):  # type: ignore[no-untyped-def]
    """Sum of the float32 squares of x [n], float64."""
    total = 0.0
    for j in range(x.size):
        total += f64(x[j] * x[j])
    return total


@_jit
def adam(r, m, v, moments):  # type: ignore[no-untyped-def]
    """`adam_update.adam_` of flat float32 arrays: |U|^2; r becomes U."""
    _direction(r, m, v, moments)
    return square_sum(r)


@_jit
def apollo(coef, r, m, v, squares, by_row, one_scale, moments, limiter, bounds):  # type: ignore[no-untyped-def]
    """`apollo.channel_rates_` of float32 r, m, v [a, b], with rows or columns as channels: (|G|^2, |U| / L);
    fills coef [channels]. Does nothing if |G|^2 is out of bounds."""
    grad_square = squares.sum()
    if not bounds[0] <= grad_square <= bounds[1]:
        return grad_square, 0.0
    before, after = np.empty(coef.size), np.empty(coef.size)
    _square_sums(r, by_row, before)
    _direction(r.reshape(r.size), m.reshape(r.size), v.reshape(r.size), moments)
    _square_sums(r, by_row, after)
    if one_scale:
        before[:], after[:] = before.sum(), after.sum()
    rate, previous, gamma, epsilon = limiter
    scales = np.sqrt(after) / (np.sqrt(before) + epsilon)
    square = 0.0
    for c in range(coef.size):
        square += scales[c] * scales[c] * squares[c]
    norm = math.sqrt(square)
    limit = max(norm / (previous + epsilon) / gamma, 1.0)
    for c in range(coef.size):
        coef[c] = f32(scales[c] * (rate / limit))
    return grad_square, norm / limit


@_jit
def write_rows(weight, update, coef, rows, first, decay, key_low, key_high, stochastic):  # type: ignore[no-untyped-def]
    """w[rows[i]] = round(w[rows[i]] * decay + coef[i] * u[i]), in place. weight uint32 [m, n/2] (bf16 [m, n]); rows
    int64 [k], not negative; update uint32 [k, n/2], coef float32 [k]. first: index in the parameter of weight[0, 0],
    even."""
    keep, key_low, key_high, start = f32(decay), u32(key_low), u32(key_high), u32(first // 2)
    columns = weight.shape[1]
    for i in range(rows.size):
        scale, row = coef[i], weight[rows[i]]
        begin = u32(start + u32(rows[i] * columns))
        for j in range(columns):
            w, u = row[j], update[i, j]
            low = _low(w) * keep + scale * _low(u)
            high = _high(w) * keep + scale * _high(u)
            row[j] = _merge(low, high, _noise(u32(begin + u32(j)), key_low, key_high), stochastic)


@_jit
def write_columns(weight, update, coef, first, decay, key_low, key_high, stochastic):  # type: ignore[no-untyped-def]
    """w = round(w * decay + coef[:, j] * u), in place. coef float32 [2, n/2]: even columns, then odd columns. first:
    as above."""
    keep, key_low, key_high, start = f32(decay), u32(key_low), u32(key_high), u32(first // 2)
    rows, columns = weight.shape
    for i in range(rows):
        begin = u32(start + u32(i * columns))
        for j in range(columns):
            w, u = weight[i, j], update[i, j]
            low = _low(w) * keep + coef[0, j] * _low(u)
            high = _high(w) * keep + coef[1, j] * _high(u)
            weight[i, j] = _merge(low, high, _noise(u32(begin + u32(j)), key_low, key_high), stochastic)


@_jit
def write_elements(weight, update, first, coef, decay, key_low, key_high, stochastic):  # type: ignore[no-untyped-def]
    """w = round(w * decay + coef * u), in place. weight uint32 [n/2] (bf16 [n]), update float32 [n], coef a number.
    first: index in the parameter of the first element, even."""
    keep, scale, key_low, key_high, start = f32(decay), f32(coef), u32(key_low), u32(key_high), u32(first // 2)
    for j in range(weight.size):
        low = _low(weight[j]) * keep + scale * update[2 * j]
        high = _high(weight[j]) * keep + scale * update[2 * j + 1]
        weight[j] = _merge(low, high, _noise(u32(start + u32(j)), key_low, key_high), stochastic)


@_jit
def write_floats(weight, update, first, coef, decay, key_low, key_high, stochastic):  # type: ignore[no-untyped-def]
    """Like `write_elements`, for float32 weights [n] that stay on the bf16 grid; first may be odd."""
    keep, scale, key_low, key_high = f32(decay), f32(coef), u32(key_low), u32(key_high)
    for j in range(weight.size):
        index = first + j
        noise = u32(_noise(u32(index // 2), key_low, key_high) >> u32(16 * (index % 2)))
        weight[j] = u32(_round(weight[j] * keep + scale * update[j], u32(noise & u32(0xFFFF)), stochastic)).view(f32)


@_jit
def adam_step(  # type: ignore[no-untyped-def]
    weight, gradient, m, v, size, beta1, beta2, eps, coef, decay, key_low, key_high, stochastic, least, most
):  # fmt: skip
    """Adam's complete update of a bf16 parameter [size], float32 m and v, all four at addresses: (|G|^2, |U|^2). Does
    nothing unless `least` <= |G|^2 <= `most`. size even, memory aligned to words."""
    words, update = _array(gradient, (size // 2,), u32), np.empty(size, f32)
    for j in range(words.size):
        update[2 * j], update[2 * j + 1] = _low(words[j]), _high(words[j])
    grad_square = square_sum(update)
    if not least <= grad_square <= most:
        return grad_square, 0.0
    square = adam(update, _array(m, (size,), f32), _array(v, (size,), f32), (beta1, beta2, eps))
    write_elements(_array(weight, (size // 2,), u32), update, 0, coef, decay, key_low, key_high, stochastic)
    return grad_square, square


@_jit
def apollo_step(  # type: ignore[no-untyped-def]
    weight, gradient, product, m, v, norm, rows, columns, rank, by_row, one_scale, beta1, beta2, eps, rate, gamma,
    fall, epsilon, decay, key_low, key_high, stochastic, least, most,
):  # fmt: skip
    """`apollo`'s complete update of a bf16 parameter [rows, columns], columns even: (|G|^2, |U| / L). Also at
    addresses: float32 m and v, the limiter's norm, and the unscaled projection, bf16. Bounds of |G|^2 as in
    `adam_step`."""
    words = _array(gradient, (rows, columns // 2), u32)
    channels = rows if by_row else columns
    squares, shape = np.empty(channels), (rows, rank) if by_row else (rank, columns)
    if by_row:
        row_square_norms(words, squares)
    else:
        pairs = np.zeros((2, columns // 2))
        column_square_norms(words, pairs)
        squares[0::2], squares[1::2] = pairs[0], pairs[1]
    halves, r, scale = _array(product, (channels * rank,), u16), np.empty(channels * rank, f32), f32(rank**-0.5)
    for k in range(r.size):
        r[k] = u32(u32(halves[k]) << u32(16)).view(f32) * scale
    previous, coef, bounds = _array(norm, (1,), f64), np.empty(channels, f32), (least, most)
    moments, limiter = (beta1, beta2, eps), (rate, previous[0], gamma, epsilon)
    operands = r.reshape(shape), _array(m, shape, f32), _array(v, shape, f32)
    grad_square, update = apollo(coef, *operands, squares, by_row, one_scale, moments, limiter, bounds)
    if not least <= grad_square <= most:
        return grad_square, update
    if update > 0:  # `limiter.next_norm`
        previous[0] = update if math.isinf(previous[0]) else max(update, previous[0] * fall)
    target = _array(weight, (rows, columns // 2), u32)
    if by_row:
        write_rows(target, words, coef, np.arange(rows), 0, decay, key_low, key_high, stochastic)
    else:
        pairs = np.empty((2, columns // 2), f32)
        pairs[0], pairs[1] = coef[0::2], coef[1::2]
        write_columns(target, words, pairs, 0, decay, key_low, key_high, stochastic)
    return grad_square, update


@_jit
def fingerprint_sums(words: Array) -> tuple[np.uint64, np.uint64]:
    """(sum_j w_j, sum_j j * w_j) modulo 2^64 of uint32 words [n]."""
    total, weighted = u64(0), u64(0)
    for j in range(words.size):
        word = u64(words[j])
        total += word
        weighted += u64(j) * word
    return total, weighted


@_jit
def fingerprint_sums_at(address, size):  # type: ignore[no-untyped-def]
    """`fingerprint_sums` of uint32 [size] at this address."""
    return fingerprint_sums(_array(address, (size,), u32))


def warm_up() -> None:
    """Compile every kernel (seconds once, then from the disk cache), so that the first step is not slow."""
    words = np.zeros((2, 2), u32)
    row_square_norms(words, np.zeros(2))
    column_square_norms(words, np.zeros((2, 2)))
    fingerprint_sums(words.ravel())
    r, m, v = np.zeros((3, 2, 2), f32)
    moments, bounds = (0.9, 0.999, 1e-6), (0.0, 1.0)
    square_sum(r.ravel())
    adam(r.ravel(), m.ravel(), v.ravel(), moments)
    apollo(np.zeros(2, f32), r, m, v, np.zeros(2), True, False, moments, (1e-5, math.inf, 1.01, 1e-8), bounds)
    options, out_of_bounds = (1.0, 0, 0, True), (1.0, math.inf)
    write_rows(words, words.copy(), np.zeros(2, f32), np.arange(2), 0, *options)
    write_columns(words, words.copy(), np.zeros((2, 2), f32), 0, *options)
    write_elements(words.ravel(), np.zeros(8, f32), 0, 0.0, *options)
    write_floats(np.zeros(8, f32), np.zeros(8, f32), 0, 0.0, *options)
    empty = np.zeros(16)
    at = empty.ctypes.data
    signs(at, 32, 0, 0)
    fingerprint_sums_at(at, 2)
    adam_step(at, at, at, at, 2, *moments, 0.0, *options, *out_of_bounds)
    apollo_step(
        at, at, at, at, at, at, 2, 2, 1, True, False, *moments, 1e-5, 1.01, 0.97, 1e-8, *options, *out_of_bounds
    )
