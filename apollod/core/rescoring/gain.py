"""Classifies how much better a line is said after it was learned. Pure.

A line is learned weakly where its loss fell by less than WEAK_GAIN of what it was and is still above SAID nats a token.
Both are needed: what was nearly known before cannot fall much, and at 0.5 nats its tokens have a probability of 0.6 in
the (geometric) mean, so that each is likelier than all others together and greedy answers say them. A fall by less
than a tenth is what steps of other examples and rounding do to a line, too.
"""

from collections.abc import Iterable
from typing import NamedTuple

from apollod.core.rescoring.state import Gain

WEAK_GAIN = 0.1
SAID = 0.5


def is_weak(before: float, after: float) -> bool:
    """True if a line with these losses (nats a token) was learned weakly."""
    return after > SAID and before - after < WEAK_GAIN * before


class Gained(NamedTuple):
    """Means over lines, nats a token; `weak`: how many of them were learned weakly."""

    scored: int
    before: float
    after: float
    weak: int


def gained(gains: Iterable[Gain]) -> Gained | None:
    """Means over these lines; None where there are none."""
    pairs = [(one.learned.before, one.after) for one in gains]
    if not pairs:
        return None
    before, after = (sum(side) / len(pairs) for side in zip(*pairs, strict=True))
    return Gained(len(pairs), before, after, sum(is_weak(*pair) for pair in pairs))
