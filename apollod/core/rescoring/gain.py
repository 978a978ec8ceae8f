"""Classifies the gain in probability of a learned line. Pure.

A line is learned weakly if its loss fell by less than WEAK_GAIN of its value before and is still above SAID nats a
token. Both are needed: the loss of a nearly known line cannot fall much, and at 0.5 nats its tokens have a probability
of 0.6 in the (geometric) mean, so that each is more probable than all others together and greedy decoding gives them.
Steps of other examples and rounding also change a line's loss by up to a tenth.
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
    """Means over these lines; None if there are none."""
    pairs = [(one.learned.before, one.after) for one in gains]
    if not pairs:
        return None
    before, after = (sum(side) / len(pairs) for side in zip(*pairs, strict=True))
    return Gained(len(pairs), before, after, sum(is_weak(*pair) for pair in pairs))
