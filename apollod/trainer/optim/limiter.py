"""The norm-growth limiter of APOLLO: one number for each parameter, state `norm`.

    L    = max(|U| / (prev + 1e-8) / gamma, 1)
    prev = |U| / L                          "growth": the paper's (arXiv:2410.01623)
    prev = max(|U| / L, FALL prev)          "envelope"

The epsilons of APOLLO make the update of a nearly memorised example far smaller than its neighbours (|G| = 1e-7 over
4096 channels: 12 %). By the paper's rule the next ordinary update starts from there and wins back 1 % a step. The
envelope falls by FALL at most, so one such update changes no later one by more than 1 - FALL; as long as no update
falls that far below the one before, both rules give the same bits.
"""

from __future__ import annotations

import math
from typing import Literal

LimiterRule = Literal["envelope", "growth"]

FALL: dict[str, float] = {"growth": 0.0, "envelope": 0.97}
"""Least remaining share of the compared norm after one update, by rule. Part of the bits of a step."""


def next_norm(update: float, previous: float, fall: float) -> float:
    """`prev` after an update with |U| / L = `update`; `previous` is infinite before the first one.

    An update of zero says nothing about growth, and would hold all later ones near zero.
    """
    if not update > 0:
        return previous
    return update if math.isinf(previous) else max(update, previous * fall)
