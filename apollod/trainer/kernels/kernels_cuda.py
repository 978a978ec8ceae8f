# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""Triton kernels of one APOLLO update: projection with channel norms, moments, rounded write; the same for Adam's
parameters.

Nothing here waits for the device. The kernels detect a zero or nonfinite gradient and note it in
`result`:

    result float64 [8]: |G|^2, |U| (corrected, limited), previous norm, correction, 1.0 at the first update; the rest
    unused

Triton compiles variants for numbers that are 1 or a multiple of 16. Only strides and lengths use that (they
decide how memory is read): keys and counts differ with every step or shape, and are not specialized.

Law of this file: a result is a pure function of its inputs, without atomics and without tuning at run time: a
thread adds its elements in order of index, threads are combined by a tree of fixed shape, programs by index (`_total`),
all of sizes that follow from the tensor's shape alone. The arithmetic is that of the eager path (apollo.py,
rounding.py), which is the oracle: float32 with each operation rounded on its own (launch with UNFUSED), norms and the
limiter in float64. It differs in the sums of the first kernel: the projection is not rounded to bf16, and a thread adds
up its squares in float32.
"""

import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]

UNFUSED = {"enable_fp_fusion": False}
"""Launch option: no multiply-add with one rounding, in PTX and in ptxas."""

NONE, NEAREST, STOCHASTIC = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)  # rounding of a write

# float64 [11], one a parameter group
BETA1, REST1, BETA2, REST2, EPS, LR, DECAY, GAMMA, LOG_BETA1, LOG_BETA2, FALL = (tl.constexpr(i) for i in range(11))

_SQUARE, _UPDATE, _PREVIOUS, _FACTOR, _FIRST = (tl.constexpr(i) for i in range(5))
_SQUARE_MIN, _SQUARE_MAX = tl.constexpr(1e-8**2), tl.constexpr(1e15**2)  # moments.GRADIENT_NORM_MIN and _MAX
_NORM_EPSILON = tl.constexpr(1e-8)  # moments.NORM_EPSILON
_SUM = tl.constexpr(1024)  # partial sums added at once


@triton.jit
def _hash(index, key_low, key_high):
    """Words `index` (uint32) of a stream, uint32: `projector.random_words`."""
    x = index * 0x9E3779B1 + key_low.to(tl.uint32, bitcast=True)
    x = x ^ key_high.to(tl.uint32, bitcast=True)
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def _noise(index, key_low, key_high):
    """16 random bits of elements `index` (int64), uint32: `rounding.noise`."""
    return (_hash((index >> 1).to(tl.uint32), key_low, key_high) >> ((index & 1) * 16).to(tl.uint32)) & 0xFFFF


@triton.jit
def _round(value, noise, ROUND: tl.constexpr):
    """float32 on the bf16 grid; NaN is kept, infinity cannot carry. noise: uint32 below 2^16."""
    if ROUND == NONE:
        return value
    bits = value.to(tl.uint32, bitcast=True)
    if ROUND == NEAREST:
        rounded = bits + 0x7FFF + ((bits >> 16) & 1)
    else:
        rounded = bits + noise
    kept = tl.where((bits & 0x7FFFFFFF) > 0x7F800000, 0x7FC00000, rounded & 0xFFFF0000).to(tl.uint32)
    return kept.to(tl.float32, bitcast=True)


@triton.jit
def _basis(k, key_low, key_high, RANK: tl.constexpr, RANK_BLOCK: tl.constexpr, DTYPE: tl.constexpr):
    """Rows k of P without its factor, [len(k), RANK_BLOCK] of 1, -1 and, behind RANK, 0: `projector.signs`."""
    if RANK == RANK_BLOCK and RANK % 32 == 0:  # a hash for 32 entries
        words = k[:, None] * (RANK // 32) + tl.arange(0, RANK // 32)[None, :]
        words = _hash(words.to(tl.uint32), key_low, key_high)
        bits = (words[:, :, None] >> tl.arange(0, 32).to(tl.uint32)[None, None, :]) & 1
        return (1.0 - 2.0 * tl.reshape(bits, (k.shape[0], RANK)).to(tl.float32)).to(DTYPE)
    entry = tl.arange(0, RANK_BLOCK)[None, :]
    index = k[:, None] * RANK + entry
    bits = (_hash((index >> 5).to(tl.uint32), key_low, key_high) >> (index & 31).to(tl.uint32)) & 1
    return tl.where(entry < RANK, 1.0 - 2.0 * bits.to(tl.float32), 0.0).to(DTYPE)


@triton.jit
def _total(values, count):
    """Sum of float64 values[0 .. count], in an order that depends on count alone."""
    total = tl.zeros((_SUM,), tl.float64)
    for start in range(0, count, _SUM):
        at = start + tl.arange(0, _SUM)
        total += tl.load(values + at, mask=at < count, other=0.0)
    return tl.sum(total, axis=0)


@triton.jit
def _usable(square):
    """True if a gradient with this |G|^2 is used; false for NaN."""
    return (square >= _SQUARE_MIN) & (square <= _SQUARE_MAX)


@triton.jit
def _correction(t, scalars):
    """sqrt(1 - b2^t) / (1 - b1^t), float64."""
    first = 1.0 - tl.exp(t * tl.load(scalars + LOG_BETA1))
    return tl.sqrt(1.0 - tl.exp(t * tl.load(scalars + LOG_BETA2))) / first


@triton.jit
def _open(result, square, t, scalars, shape_factor):
    """Store the values for the write. shape_factor: sqrt(n / r)."""
    tl.store(result + _SQUARE, square)
    tl.store(result + _FIRST, tl.where(t == 0, 1.0, 0.0).to(tl.float64))
    tl.store(result + _FACTOR, _correction((t + 1).to(tl.float64), scalars) * shape_factor)


@triton.jit
def _direction(g, m, v, scalars):
    """(m, v, m / (sqrt(v) + eps)) after gradient g; all float32."""
    m = m * tl.load(scalars + BETA1).to(tl.float32) + g * tl.load(scalars + REST1).to(tl.float32)
    v = v * tl.load(scalars + BETA2).to(tl.float32) + (g * g) * tl.load(scalars + REST2).to(tl.float32)
    return m, v, tl.div_rn(m, tl.sqrt_rn(v) + tl.load(scalars + EPS).to(tl.float32))


@triton.jit
def _keep(moment, at, value, mask, index, key_low, key_high):
    """Store one moment; bf16 is rounded stochastically, with the noise of element `index`."""
    if moment.dtype.element_ty == tl.bfloat16:
        value = _round(value, _noise(index, key_low, key_high), STOCHASTIC)
    tl.store(moment + at, value.to(moment.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["count", "channels", "inner", "key_low", "key_high"])
def project(gradient, low_rank, squares, totals, numbers, count, channels, inner, channel_stride, inner_stride,
            inner_split, key_low, key_high,
            RANK: tl.constexpr, RANK_BLOCK: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_K: tl.constexpr,
            OPERAND: tl.constexpr, INDEXED: tl.constexpr):  # fmt: skip
    """Kernel 1, grid [channel blocks, splits of the inner side]: R and |G_c|^2 of a block of channels, over one split.

    gradient  `count` channels, bf16 or float32; element (channel c, k) at c * channel_stride + k * inner_stride
    low_rank  float32 [splits, channels, RANK], without the factor 1/sqrt(RANK)
    squares   float64 [splits, channels]; totals float64 [splits, channel blocks]: sums of blocks of them
    numbers   INDEXED: int64 [count], which of the `channels` the gradient's are; else the first ones
    """
    block, split = tl.program_id(0), tl.program_id(1)
    c, k = tl.arange(0, BLOCK_C), tl.arange(0, BLOCK_K)
    inside = block * BLOCK_C + c < count
    first = split * inner_split
    tile = gradient + (block * BLOCK_C).to(tl.int64) * channel_stride + first.to(tl.int64) * inner_stride
    tile += c[:, None] * channel_stride + k[None, :] * inner_stride
    acc, square = tl.zeros((BLOCK_C, RANK_BLOCK), tl.float32), tl.zeros((BLOCK_C, BLOCK_K), tl.float32)
    for start in range(first, first + inner_split, BLOCK_K):
        g = tl.load(tile, mask=inside[:, None] & (start + k < inner)[None, :], other=0.0)
        wide = g.to(tl.float32)
        square += wide * wide
        basis = _basis(start + k, key_low, key_high, RANK, RANK_BLOCK, OPERAND)
        acc = tl.dot(g.to(OPERAND), basis, acc, input_precision="ieee")
        tile += BLOCK_K * inner_stride
    number, entry = block * BLOCK_C + c, tl.arange(0, RANK_BLOCK)
    if INDEXED:
        number = tl.load(numbers + number, mask=inside, other=0)
    channel = split * channels + number
    at = channel.to(tl.int64)[:, None] * RANK + entry[None, :]
    tl.store(low_rank + at, acc, mask=inside[:, None] & (entry < RANK)[None, :])
    sums = tl.sum(square.to(tl.float64), axis=1)
    tl.store(squares + channel, sums, mask=inside)
    tl.store(totals + split * tl.num_programs(0) + block, tl.sum(sums, axis=0))


@triton.jit(
    do_not_specialize=["channels", "inner", "total_count", "splits", "tiles", "m_low", "m_high", "v_low", "v_high"]
)
def moments(low_rank, squares, totals, m, v, norm, t, scalars, scales, partials, result,
            channels, inner, total_count, splits, tiles, channel_stride, rank_stride, root, m_low, m_high, v_low,
            v_high,
            RANK: tl.constexpr, RANK_BLOCK: tl.constexpr, BLOCK_C: tl.constexpr, ONE_SCALE: tl.constexpr):  # fmt: skip
    """Kernel 2, grid [programs], `tiles` tiles of BLOCK_C channels each: m, v and the scale of each channel.

    m, v      float32 or bf16; element (channel c, j) at c * channel_stride + j * rank_stride
    root      1/sqrt(RANK)
    scales    float64 [channels]: s_c. Not written where ONE_SCALE (one scale for all)
    partials  float64 [2, programs]: sums of s_c^2 |G_c|^2 and 0; ONE_SCALE: of |Rt|^2 and |R|^2
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    square = _total(totals, total_count)
    writable = tl.where(_usable(square), channels, 0)
    if program == 0:
        _open(result, square, tl.load(t), scalars, tl.sqrt(inner.to(tl.float64) / RANK))
        tl.store(result + _PREVIOUS, tl.load(norm))
    rank = tl.arange(0, RANK_BLOCK)[None, :]
    first_sum, second_sum = tl.zeros((BLOCK_C,), tl.float64), tl.zeros((BLOCK_C,), tl.float64)
    for tile in range(program * tiles, program * tiles + tiles):
        c = tile * BLOCK_C + tl.arange(0, BLOCK_C)
        inside = c < channels
        mask = inside[:, None] & (rank < RANK)
        r, channel_square = tl.zeros((BLOCK_C, RANK_BLOCK), tl.float32), tl.zeros((BLOCK_C,), tl.float64)
        for split in range(0, splits):
            row = (split * channels + c).to(tl.int64)
            r += tl.load(low_rank + row[:, None] * RANK + rank, mask=mask, other=0.0)
            channel_square += tl.load(squares + row, mask=inside, other=0.0)
        r = r * root
        before = tl.sum((r * r).to(tl.float64), axis=1)
        at = c.to(tl.int64)[:, None] * channel_stride + rank * rank_stride
        old_m, old_v = (
            tl.load(m + at, mask=mask, other=0.0).to(tl.float32),
            tl.load(v + at, mask=mask, other=0.0).to(tl.float32),
        )
        new_m, new_v, u = _direction(r, old_m, old_v, scalars)
        mask = (c < writable)[:, None] & (rank < RANK)
        _keep(m, at, new_m, mask, at, m_low, m_high)
        _keep(v, at, new_v, mask, at, v_low, v_high)
        after = tl.sum((u * u).to(tl.float64), axis=1)
        if ONE_SCALE:
            first_sum, second_sum = first_sum + after, second_sum + before
        else:
            scale = tl.sqrt(after) / (tl.sqrt(before) + _NORM_EPSILON)
            tl.store(scales + c, scale, mask=inside)
            first_sum += scale * scale * channel_square
    tl.store(partials + program, tl.sum(first_sum, axis=0))
    tl.store(partials + programs + program, tl.sum(second_sum, axis=0))


@triton.jit
def _limit(partials, partial_count, scalars, result, ONE_SCALE: tl.constexpr):
    """(scale of all channels, -lr correction / L, |U| / L), float64; the scale is 1 where channels have their own."""
    square, total = tl.load(result + _SQUARE), _total(partials, partial_count)
    scale = tl.full((), 1.0, tl.float64)
    if ONE_SCALE:
        scale = tl.sqrt(total) / (tl.sqrt(_total(partials + partial_count, partial_count)) + _NORM_EPSILON)
        total = scale * scale * square
    update = tl.sqrt(total)
    growth = update / (tl.load(result + _PREVIOUS) + _NORM_EPSILON) / tl.load(scalars + GAMMA)
    limit = tl.where(growth > 1.0, growth, 1.0)
    rate = -tl.load(scalars + LR) * tl.load(result + _FACTOR)
    return scale, rate / limit, update / limit


@triton.jit
def _write_words(
    weight, gradient, at, source, coef_low, coef_high, decay, mask, index, key_low, key_high, ROUND: tl.constexpr
):
    """Two bf16 elements a lane, as one word (low half: the even element) with a shared hash. `source`: words of the
    gradient."""
    word_w, word_g = tl.load(weight + at, mask=mask, other=0), tl.load(gradient + source, mask=mask, other=0)
    word_w, word_g = word_w.to(tl.uint32, bitcast=True), word_g.to(tl.uint32, bitcast=True)
    noise = _hash(index, key_low, key_high)
    w, g = (word_w << 16).to(tl.float32, bitcast=True), (word_g << 16).to(tl.float32, bitcast=True)
    low = _round(w * decay + g * coef_low, noise & 0xFFFF, ROUND).to(tl.uint32, bitcast=True)
    w, g = (word_w & 0xFFFF0000).to(tl.float32, bitcast=True), (word_g & 0xFFFF0000).to(tl.float32, bitcast=True)
    high = _round(w * decay + g * coef_high, noise >> 16, ROUND).to(tl.uint32, bitcast=True)
    tl.store(weight + at, (high | (low >> 16)).to(tl.int32, bitcast=True), mask=mask)


@triton.jit
def _write_elements(
    weight, master, at, u, coef, decay, mask, index, first, key_low, key_high, ROUND: tl.constexpr, MASTER: tl.constexpr
):
    """weight = round(weight * decay + coef * u); MASTER: the same on the float32 copy, rounded to give the weight."""
    w = tl.load(weight + at, mask=mask, other=0.0).to(tl.float32)
    if MASTER:
        w = tl.where(first, w, tl.load(master + at, mask=mask, other=0.0))
    value = w * decay + u * coef
    if MASTER:
        tl.store(master + at, value, mask=mask)
    if ROUND == STOCHASTIC:
        value = _round(value, _noise(index, key_low, key_high), STOCHASTIC)
    else:
        value = _round(value, 0, ROUND)
    tl.store(weight + at, value.to(weight.dtype.element_ty), mask=mask)


@triton.jit(
    do_not_specialize=["rows", "first", "across", "tile_count", "tiles", "partial_count", "last", "key_low", "key_high"]
)
def write(weight, master, gradient, scales, partials, norm, t, scalars, result, numbers, rows, first, columns, across,
tile_count, tiles, partial_count, last, key_low, key_high,
          BY_ROW: tl.constexpr, ONE_SCALE: tl.constexpr, WORDS: tl.constexpr, ROUND: tl.constexpr,
          MASTER: tl.constexpr, INDEXED: tl.constexpr,
          BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):  # fmt: skip
    """Kernel 3, grid [programs], `tiles` of the `tile_count` tiles each: the weights of some rows, or nothing where
    |G| says so.

    weight    contiguous [.., columns]; WORDS: int32, two bf16 each, like the gradient
    gradient  contiguous [rows, columns], of the rows `numbers` int64 [rows] (INDEXED) or from `first` on
    across    tiles in a row of tiles
    last      1 where these are all rows that are written: `close`, too
    """
    scale, rate, update = _limit(partials, partial_count, scalars, result, ONE_SCALE)
    usable, decay = _usable(tl.load(result + _SQUARE)), tl.load(scalars + DECAY).to(tl.float32)
    program = tl.program_id(0)
    end = tl.where(usable, tl.minimum(program * tiles + tiles, tile_count), 0)
    for tile in range(program * tiles, end):
        row, column = tile // across * BLOCK_M + tl.arange(0, BLOCK_M), tile % across * BLOCK_N + tl.arange(0, BLOCK_N)
        mask = (row < rows)[:, None] & (column < columns)[None, :]
        number = first + row
        if INDEXED:
            number = tl.load(numbers + row, mask=row < rows, other=0)
        source = row.to(tl.int64)[:, None] * columns + column[None, :]
        at = number.to(tl.int64)[:, None] * columns + column[None, :]
        coef = (scale * rate).to(tl.float32)
        if not ONE_SCALE:
            if BY_ROW:
                coef = (tl.load(scales + number, mask=row < rows, other=0.0) * rate).to(tl.float32)[:, None]
            else:
                channel = column * 2 if WORDS else column
                coef = (tl.load(scales + channel, mask=column < columns, other=0.0) * rate).to(tl.float32)[None, :]
        if WORDS:
            odd = coef
            if not ONE_SCALE and not BY_ROW:
                odd = (tl.load(scales + column * 2 + 1, mask=column < columns, other=0.0) * rate).to(tl.float32)[
                    None, :
                ]
            _write_words(
                weight, gradient, at, source, coef, odd, decay, mask, at.to(tl.uint32), key_low, key_high, ROUND
            )
        else:
            u = tl.load(gradient + source, mask=mask, other=0.0).to(tl.float32)
            new = tl.load(result + _FIRST) > 0.0
            _write_elements(weight, master, at, u, coef, decay, mask, at, new, key_low, key_high, ROUND, MASTER)
    if program == 0:
        if last == 1:
            _close(norm, t, scalars, result, update, usable)


@triton.jit(do_not_specialize=["partial_count"])
def close(partials, norm, t, scalars, result, partial_count, ONE_SCALE: tl.constexpr):
    """End of kernel 3 after several launches, one program."""
    _, _, update = _limit(partials, partial_count, scalars, result, ONE_SCALE)
    _close(norm, t, scalars, result, update, _usable(tl.load(result + _SQUARE)))


@triton.jit
def _close(norm, t, scalars, result, update, usable):
    """Store `result`, the limiter's norm and t after the update; other programs read the old values from `result`."""
    tl.store(result + _UPDATE, update * tl.load(result + _FACTOR))
    previous = tl.load(result + _PREVIOUS)  # `limiter.next_norm`
    least = tl.where(previous < float("inf"), previous * tl.load(scalars + FALL), 0.0)
    tl.store(norm, tl.maximum(update, least), mask=usable & (update > 0.0))
    tl.store(t, tl.load(t) + 1, mask=usable)


@triton.jit(do_not_specialize=["size"])
def square_sums(gradient, totals, size, length, BLOCK: tl.constexpr):
    """Adam's kernel 1, grid [programs], `length` elements each: sums of squares, float64 [programs]."""
    first = tl.program_id(0).to(tl.int64) * length
    square = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, length, BLOCK):
        at = start + tl.arange(0, BLOCK)
        g = tl.load(gradient + first + at, mask=(at < length) & (first + at < size), other=0.0).to(tl.float32)
        square += g * g
    tl.store(totals + tl.program_id(0), tl.sum(square.to(tl.float64), axis=0))


@triton.jit(do_not_specialize=["size", "key_low", "key_high", "m_low", "m_high", "v_low", "v_high"])
def adam(weight, master, gradient, m, v, t, totals, partials, scalars, size, length, key_low, key_high, m_low, m_high,
v_low, v_high,
         ROUND: tl.constexpr, MASTER: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Adam's kernel 2, same grid: m, v and the weights of `length` elements; |U|^2 of each program, float64
    [programs]."""
    first = tl.program_id(0).to(tl.int64) * length
    writable, t_old = tl.where(_usable(_total(totals, tl.num_programs(0))), size, 0), tl.load(t)
    decay = tl.load(scalars + DECAY).to(tl.float32)
    coef = (-tl.load(scalars + LR) * _correction((t_old + 1).to(tl.float64), scalars)).to(tl.float32)
    square = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, length, BLOCK):
        at = first + start + tl.arange(0, BLOCK)
        mask = (at < first + length) & (at < size)
        g = tl.load(gradient + at, mask=mask, other=0.0).to(tl.float32)
        old_m, old_v = (
            tl.load(m + at, mask=mask, other=0.0).to(tl.float32),
            tl.load(v + at, mask=mask, other=0.0).to(tl.float32),
        )
        new_m, new_v, u = _direction(g, old_m, old_v, scalars)
        square += u * u
        mask = (at < first + length) & (at < writable)
        _keep(m, at, new_m, mask, at, m_low, m_high)
        _keep(v, at, new_v, mask, at, v_low, v_high)
        _write_elements(weight, master, at, u, coef, decay, mask, at, t_old == 0, key_low, key_high, ROUND, MASTER)
    tl.store(partials + tl.program_id(0), tl.sum(square.to(tl.float64), axis=0))


@triton.jit(do_not_specialize=["programs"])
def close_adam(t, totals, partials, scalars, result, programs):
    """Adam's kernel 3, one program: `result`, and t, which all other programs have read by now."""
    square, t_old = _total(totals, programs), tl.load(t)
    _open(result, square, t_old, scalars, 1.0)
    tl.store(result + _UPDATE, tl.sqrt(_total(partials, programs)) * _correction((t_old + 1).to(tl.float64), scalars))
    tl.store(t, t_old + 1, mask=_usable(square))
