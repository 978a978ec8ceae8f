"""Confidence intervals of measured rates."""

import math

Z_95 = 1.959964
"""Normal quantile of a two-sided 95 % interval."""
Z_95_ONE_SIDED = 1.644854
"""Normal quantile of a one-sided 95 % bound."""


def wilson(hits: int, of: int, z: float = Z_95) -> tuple[float, float]:
    """Score interval of a rate (Wilson 1927, doi:10.1080/01621459.1927.10502953), 95 % by default; 0 to 1 if `of` is
    0."""
    if not of:
        return 0.0, 1.0
    rate, square = hits / of, z * z
    middle = (rate + square / (2 * of)) / (1 + square / of)
    half = z / (1 + square / of) * math.sqrt(rate * (1 - rate) / of + square / (4 * of * of))
    return max(0.0, middle - half), min(1.0, middle + half)
