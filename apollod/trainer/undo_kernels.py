"""Compiled CPU passes of undo_codec.py: codes of what changed, and back. Law and conventions as in kernels_cpu.py."""

from __future__ import annotations

import numpy as np

from apollod.trainer.kernels_cpu import AVAILABLE, _jit

__all__ = ["AVAILABLE", "BLOCK", "LANES", "pack_floats", "pack_halves", "unpack_floats", "unpack_halves"]

if AVAILABLE:
    from llvmlite import ir  # type: ignore[import-untyped]
    from numba import types  # type: ignore[import-untyped]
    from numba.extending import intrinsic  # type: ignore[import-untyped]

    @intrinsic
    def _trailing_zeros(_context, _word):  # type: ignore[no-untyped-def]
        """Zero bits below the lowest one of a uint64 that is not zero."""

        def generate(_target, builder, _signature, arguments):  # type: ignore[no-untyped-def]
            return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

        return types.uint64(types.uint64), generate


i16, i32, u16, u32, u64 = np.int16, np.int32, np.uint16, np.uint32, np.uint64

BLOCK = 512  # elements
LANES = 64  # code words (16 bits, 8 elements) of a block: whole vector registers
_PAIRS = 0x5555555555555555
_TOO_FAR = -(1 << 15)


@_jit
def _code(old, new):  # type: ignore[no-untyped-def]
    """0 the same, 1 one up, 2 one down, 3 something else."""
    step = u16(new - old)
    near = u16(2) if step == u16(0xFFFF) else step
    return u16(3) if u16(step + u16(1)) > u16(2) else near


@_jit
def _back(word, shift):  # type: ignore[no-untyped-def]
    """What one code of a word takes off a value: 1, -1, else 0."""
    code = u16(u16(word >> u16(shift)) & u16(3))
    return u16(u16(code & u16(1)) - u16(code >> u16(1)))


@_jit
def _pack_block(old, new, row):  # type: ignore[no-untyped-def]
    """Codes of one block in row uint16 [LANES]; whether one is not 0. Written out, so that lanes become vectors."""
    for k in range(LANES):
        row[k] = u16(
            _code(old[k], new[k])
            | (_code(old[64 + k], new[64 + k]) << 2)
            | (_code(old[128 + k], new[128 + k]) << 4)
            | (_code(old[192 + k], new[192 + k]) << 6)
            | (_code(old[256 + k], new[256 + k]) << 8)
            | (_code(old[320 + k], new[320 + k]) << 10)
            | (_code(old[384 + k], new[384 + k]) << 12)
            | (_code(old[448 + k], new[448 + k]) << 14)
        )


@_jit
def _unpack_block(values, row):  # type: ignore[no-untyped-def]
    for k in range(LANES):
        word = row[k]
        values[k] -= _back(word, 0)
        values[64 + k] -= _back(word, 2)
        values[128 + k] -= _back(word, 4)
        values[192 + k] -= _back(word, 6)
        values[256 + k] -= _back(word, 8)
        values[320 + k] -= _back(word, 10)
        values[384 + k] -= _back(word, 12)
        values[448 + k] -= _back(word, 14)


@_jit
def _take_escapes(old, row, escapes, count):  # type: ignore[no-untyped-def]
    """Append the old values of one block that no code says; row uint64 [LANES / 4]. The new count."""
    for q in range(LANES // 4):
        found = u64(row[q] & (row[q] >> u64(1)) & u64(_PAIRS))
        while found:
            bit = _trailing_zeros(found)
            found &= u64(found - u64(1))
            escapes[count] = old[(bit % u64(16)) // u64(2) * u64(64) + u64(4 * q) + bit // u64(16)]
            count += 1
    return count


@_jit
def _put_escapes(values, row, escapes, count):  # type: ignore[no-untyped-def]
    """The way back of `_take_escapes`."""
    for q in range(LANES // 4):
        found = u64(row[q] & (row[q] >> u64(1)) & u64(_PAIRS))
        while found:
            bit = _trailing_zeros(found)
            found &= u64(found - u64(1))
            values[(bit % u64(16)) // u64(2) * u64(64) + u64(4 * q) + bit // u64(16)] = escapes[count]
            count += 1
    return count


@_jit
def pack_halves(old, new, flags, codes, lanes, escapes):  # type: ignore[no-untyped-def]
    """uint16 old, new [n]; flags uint8 [blocks], codes uint64 [blocks, 16], lanes: codes as uint16. (Blocks kept, escapes); a
    negative count where there is no room for those of another block."""
    kept, count = 0, 0
    rest_old, rest_new = np.zeros(BLOCK, u16), np.zeros(BLOCK, u16)
    for block in range(flags.size):
        start = block * BLOCK
        before, after = old[start : start + BLOCK], new[start : start + BLOCK]
        if before.size < BLOCK:
            rest_old[: before.size] = before
            rest_new[: after.size] = after
            before, after = rest_old, rest_new
        if count + BLOCK > escapes.size:
            return kept, -1
        _pack_block(before, after, lanes[kept])
        row, changed = codes[kept], u64(0)
        for q in range(LANES // 4):
            changed |= row[q]
        flags[block] = changed != u64(0)
        if changed:
            count = _take_escapes(before, row, escapes, count)
            kept += 1
    return kept, count


@_jit
def unpack_halves(values, flags, codes, lanes, escapes):  # type: ignore[no-untyped-def]
    """The way back of `pack_halves`: values uint16 [n], in place."""
    kept, count = 0, 0
    rest = np.zeros(BLOCK, u16)
    for block in range(flags.size):
        if not flags[block]:
            continue
        start = block * BLOCK
        part = values[start : start + BLOCK]
        whole = part.size == BLOCK
        target = part if whole else rest
        if not whole:
            rest[: part.size] = part
        _unpack_block(target, lanes[kept])
        count = _put_escapes(target, codes[kept], escapes, count)
        kept += 1
        if not whole:
            part[:] = rest[: part.size]


@_jit
def pack_floats(old, new, steps, escapes):  # type: ignore[no-untyped-def]
    """uint32 old, new [n]; steps int16 [n]. Escapes; negative where there is no room for those of another block."""
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
    """The way back of `pack_floats`: values uint32 [n], in place."""
    count = 0
    for k in range(values.size):
        if steps[k] == i16(_TOO_FAR):
            values[k] = escapes[count]
            count += 1
        else:
            values[k] -= u32(i32(steps[k]))
