"""Looks for NaN and infinity in bytes, by comparing them as integers: without torch, in one pass for each sign."""

import numpy as np

BLOCK_BYTES = 1 << 20  # stays in a processor's cache for both passes

_LIMITS = {"bfloat16": ("<i2", "<u2", 0x7F80), "float16": ("<i2", "<u2", 0x7C00), "float32": ("<i4", "<u4", 0x7F800000)}
"""dtype -> its elements as signed and as unsigned integers, and infinity as one: whatever is not finite is as large"""


def is_finite(data: bytes | bytearray | memoryview, dtype: str) -> bool:
    """True if bytes, taken as elements of `dtype` (float32, bfloat16 or float16), hold neither NaN nor infinity. They
    may begin at any address."""
    signed, unsigned, infinity = _LIMITS[dtype]
    negative = infinity | 1 << (8 * int(signed[2]) - 1)
    for start in range(0, len(data), BLOCK_BYTES):
        block = np.frombuffer(data[start : start + BLOCK_BYTES], unsigned)
        # as signed integers, only positive values can reach infinity; as unsigned ones, the negative are the largest
        if block.max() >= negative or block.view(signed).max() >= infinity:
            return False
    return True
