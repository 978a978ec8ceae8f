"""Estimates the duration of a step from earlier ones; used for display, and to limit the replays of a search."""

from collections.abc import Sequence
from typing import NamedTuple

KEPT = 16
"""number of last steps in an estimate"""


class Pace(NamedTuple):
    """Length and duration of an applied step."""

    tokens: int
    seconds: float


def expected_s(recent: Sequence[Pace], tokens: int) -> float | None:
    """Expected seconds for a step of `tokens`: by the median time a token, but at least as long as the quickest step,
    since some of the work does not depend on the length. None if not known."""
    known = [pace for pace in recent if pace.tokens > 0]
    if not known or tokens <= 0:
        return None
    rates = sorted(pace.seconds / pace.tokens for pace in known)
    return max(rates[len(rates) // 2] * tokens, min(pace.seconds for pace in known))
