"""How far a rate that was counted can be trusted."""

import math

Z_95 = 1.959964


def wilson(hits: int, of: int) -> tuple[float, float]:
    """95 % score interval of a rate (Wilson 1927, doi:10.1080/01621459.1927.10502953); 0 to 1 where there is
    nothing."""
    if not of:
        return 0.0, 1.0
    rate, square = hits / of, Z_95 * Z_95
    middle = (rate + square / (2 * of)) / (1 + square / of)
    half = Z_95 / (1 + square / of) * math.sqrt(rate * (1 - rate) / of + square / (4 * of * of))
    return max(0.0, middle - half), min(1.0, middle + half)
