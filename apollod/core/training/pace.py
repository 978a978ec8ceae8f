"""Estimates how long a step takes from those before it; used for display, and for how long a search waits for a
replay."""

from collections.abc import Sequence
from typing import NamedTuple

KEPT = 16
"""steps that an estimate is made of"""


class Pace(NamedTuple):
    """A step that was applied: its length, and how long it took."""

    tokens: int
    seconds: float


def expected_s(recent: Sequence[Pace], tokens: int) -> float | None:
    """Seconds that a step of so many tokens takes: the median time a token, but no less than the quickest step took,
    since some of the work does not depend on the length. None while nothing is known."""
    known = [pace for pace in recent if pace.tokens > 0]
    if not known or tokens <= 0:
        return None
    rates = sorted(pace.seconds / pace.tokens for pace in known)
    return max(rates[len(rates) // 2] * tokens, min(pace.seconds for pace in known))
