"""Compiled CPU passes of undo_codec.py: encoding changes, and decoding. Law and conventions as in kernels_cpu.py."""

from __future__ import annotations

import numpy as np

from apollod.trainer.kernels.kernels_cpu import AVAILABLE, _array, _jit
from apollod.trainer.kernels.passes import UNDO_BLOCK as BLOCK
from apollod.trainer.kernels.passes import UNDO_LANES as LANES

__all__ = ["AVAILABLE", "pack_at", "pack_floats", "unpack_floats", "unpack_halves"]

if AVAILABLE:
    from llvmlite import ir  # type: ignore[import-untyped]
    from numba import types  # type: ignore[import-untyped]
    from numba.extending import intrinsic  # type: ignore[import-untyped]

    @intrinsic
    def _trailing_zeros(_context, _word):  # type: ignore[no-untyped-def]
        """Zero bits below the lowest one of a uint64; 64 if it is zero."""

        def generate(_target, builder, _signature, arguments):  # type: ignore[no-untyped-def]
            return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

        return types.uint64(types.uint64), generate


i16, i32, u8, u16, u32, u64 = np.int16, np.int32, np.uint8, np.uint16, np.uint32, np.uint64

_PAIRS = 0x5555555555555555
_TOO_FAR = -(1 << 15)


@_jit
def _code(old, new):  # type: ignore[no-untyped-def]
    """0 the same, 1 one up, 2 one down, 3 any other change."""
    step = u16(new - old)
    near = u16(2) if step == u16(0xFFFF) else step
    return u16(3) if u16(step + u16(1)) > u16(2) else near


@_jit
def _element(bit, q):  # type: ignore[no-untyped-def]
    """Index in its block of the code that begins at this bit of the q-th uint64."""
    return ((bit & u64(15)) << u64(5)) + (u64(q) << u64(2)) + (bit >> u64(4))


@_jit
def _back(word, shift):  # type: ignore[no-untyped-def]
    """The correction to subtract for one code of a word: 1, -1, else 0."""
    code = u16(u16(word >> u16(shift)) & u16(3))
    return u16(u16(code & u16(1)) - u16(code >> u16(1)))


@_jit
def pack_halves(old, new, flags, codes, lanes, escapes, kept, count):  # type: ignore[no-untyped-def]
    """Encode whole blocks: old, new uint16 [b, BLOCK]; flags uint8 [b]. Codes of changed blocks go to codes[kept:]
    (uint64 [.., LANES / 4], also as uint16 `lanes`), values without a code to escapes[count:]. Returns the new (kept,
    count); a negative count if another block's escapes might not fit. No slices: numba counts references to each."""
    for b in range(old.shape[0]):
        if count + BLOCK > escapes.size:
            return kept, -1
        for k in range(LANES):  # written out, so that lanes become vectors
            lanes[kept, k] = u16(
                _code(old[b, k], new[b, k])
                | (_code(old[b, 64 + k], new[b, 64 + k]) << 2)
                | (_code(old[b, 128 + k], new[b, 128 + k]) << 4)
                | (_code(old[b, 192 + k], new[b, 192 + k]) << 6)
                | (_code(old[b, 256 + k], new[b, 256 + k]) << 8)
                | (_code(old[b, 320 + k], new[b, 320 + k]) << 10)
                | (_code(old[b, 384 + k], new[b, 384 + k]) << 12)
                | (_code(old[b, 448 + k], new[b, 448 + k]) << 14)
            )
        changed = u64(0)
        for q in range(LANES // 4):
            word = codes[kept, q]
            changed |= word
            found = u64(word & (word >> u64(1)) & u64(_PAIRS))
            # the likely one without a branch: a fifth faster
            escapes[count] = old[b, _element(_trailing_zeros(found), q)]
            count += found != u64(0)
            found &= u64(found - u64(1))
            while found:
                escapes[count] = old[b, _element(_trailing_zeros(found), q)]
                count += 1
                found &= u64(found - u64(1))
        flags[b] = changed != u64(0)
        kept += changed != u64(0)
    return kept, count


@_jit
def pack_at(old, new, size, flags, codes, escapes, most):  # type: ignore[no-untyped-def]
    """`pack_halves` of uint16 [size] at two addresses, the last block padded with zeros; writes flags, codes and at
    most `most` escapes at three others. (kept, count): numbers of blocks and escapes; a negative count if there is no
    room."""
    whole, rest = size // BLOCK, size % BLOCK
    blocks = whole + (rest > 0)
    out = _array(codes, (blocks, LANES // 4), u64), _array(codes, (blocks, LANES), u16), _array(escapes, (most,), u16)
    before, after = _array(old, (whole, BLOCK), u16), _array(new, (whole, BLOCK), u16)
    kept, count = pack_halves(before, after, _array(flags, (whole,), u8), *out, 0, 0)
    if rest and count >= 0:
        ends = np.zeros((2, 1, BLOCK), u16)
        ends[0, 0, :rest], ends[1, 0, :rest] = (
            _array(old + 2 * whole * BLOCK, (rest,), u16),
            _array(new + 2 * whole * BLOCK, (rest,), u16),
        )
        kept, count = pack_halves(ends[0], ends[1], _array(flags + whole, (1,), u8), *out, kept, count)
    return kept, count


@_jit
def unpack_halves(values, flags, codes, lanes, escapes, kept, count):  # type: ignore[no-untyped-def]
    """The inverse of `pack_halves`: values uint16 [b, BLOCK], in place. Returns the new (kept, count)."""
    for b in range(values.shape[0]):
        if not flags[b]:
            continue
        for k in range(LANES):
            word = lanes[kept, k]
            values[b, k] -= _back(word, 0)
            values[b, 64 + k] -= _back(word, 2)
            values[b, 128 + k] -= _back(word, 4)
            values[b, 192 + k] -= _back(word, 6)
            values[b, 256 + k] -= _back(word, 8)
            values[b, 320 + k] -= _back(word, 10)
            values[b, 384 + k] -= _back(word, 12)
            values[b, 448 + k] -= _back(word, 14)
        for q in range(LANES // 4):
            word = codes[kept, q]
            found = u64(word & (word >> u64(1)) & u64(_PAIRS))
            while found:
                values[b, _element(_trailing_zeros(found), q)] = escapes[count]
                count += 1
                found &= u64(found - u64(1))
        kept += 1
    return kept, count


@_jit
def pack_floats(old, new, steps, escapes):  # type: ignore[no-untyped-def]
    """Encode uint32 old, new [n] into steps int16 [n]. Returns the number of escapes; negative if another block's might
    not fit."""
    count = 0
    for start in range(0, old.size, BLOCK):
        before, after, out = old[start : start + BLOCK], new[start : start + BLOCK], steps[start : start + BLOCK]
        if count + BLOCK > escapes.size:
            return -1
        far = 0
        for k in range(before.size):
            step = i32(u32(after[k] - before[k]))
            fits = i32(i16(step)) == step and step != i32(_TOO_FAR)
            out[k] = i16(step) if fits else i16(_TOO_FAR)
            far += not fits
        if far:
            for k in range(before.size):
                escapes[count] = before[k]
                count += out[k] == i16(_TOO_FAR)
    return count


@_jit
def unpack_floats(values, steps, escapes):  # type: ignore[no-untyped-def]
    """The inverse of `pack_floats`: values uint32 [n], in place."""
    count = 0
    for k in range(values.size):
        if steps[k] == i16(_TOO_FAR):
            values[k] = escapes[count]
            count += 1
        else:
            values[k] -= u32(i32(steps[k]))
