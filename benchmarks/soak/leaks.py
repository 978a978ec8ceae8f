"""What counts as a leak: a figure of a process that rises while it lives, by more than a bound. Pure.

Each life of a process gives its samples after the warm-up; a life that has fewer than `LEAST` of them says nothing.
The slope is the median of all slopes between two samples of the same life (Theil 1950, Sen 1968), over all lives of
the same role; a few high samples do not move it. It has to be more than the bound, and surely upward: the Kendall
statistics of the lives, added up (seasonal Kendall test: Hirsch, Slack and Smith 1982, doi:10.1029/WR018i001p00107),
lie `SURE` standard deviations above what no trend gives. What rises and then stays, as caches do, is left out by the
warm-up: the first `WARM_S` seconds, and `WARM_SHARE` of the life if that is longer.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import NamedTuple

WARM_S = 600.0
WARM_SHARE = 0.3
LEAST = 8
SPAN_S = 2700.0
"""of all lives together after the warm-up, below which nothing is said"""
SURE = 3.0
MOST = 200
"""samples of a life that are compared, evenly chosen"""
HOUR = 3600.0
MIB = 1 << 20

BOUNDS: dict[str, float] = {
    "anonymous": 32.0 * MIB, "descriptors": 6.0, "threads": 4.0, "memory_files": 4.0 * MIB,
}  # fmt: skip
"""Growth in an hour that is still none: of allocated memory, which breathes with requests, and of what is counted."""

Sample = tuple[float, float]
"""(seconds, figure)"""


class Trend(NamedTuple):
    """`slope`: per hour; `sure`: standard deviations above no trend; `seconds`, `lives`: of what was looked at; `told`:
    whether that is enough to say anything."""

    slope: float
    sure: float
    seconds: float
    lives: int
    told: bool


def trend(lives: Iterable[Sequence[Sample]]) -> Trend:
    """Of one figure of one role, its samples by life."""
    warm = [kept for life in lives if len(kept := _thinned(after_warm_up(life))) >= LEAST]
    slopes, score, variance = list[float](), 0.0, 0.0
    for life in warm:
        slopes += [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(life, 2) if b[0] > a[0]]
        one, spread = _kendall([value for _, value in life])
        score, variance = score + one, variance + spread
    seconds = sum(life[-1][0] - life[0][0] for life in warm)
    if not slopes or seconds < SPAN_S:
        return Trend(0.0, 0.0, seconds, len(warm), told=False)
    sure = score / math.sqrt(variance) if variance else 0.0
    return Trend(statistics.median(slopes) * HOUR, sure, seconds, len(warm), told=True)


def is_leak(figure: str, found: Trend) -> bool:
    """Does it rise by more than the bound of its figure, surely?"""
    return found.told and found.slope > BOUNDS[figure] and found.sure > SURE


def after_warm_up(life: Sequence[Sample]) -> list[Sample]:
    """Its samples, in the order of time, without those of the beginning."""
    if not life:
        return []
    first, last = life[0][0], life[-1][0]
    warm = first + max(WARM_S, WARM_SHARE * (last - first))
    return [one for one in life if one[0] >= warm]


def _thinned(life: list[Sample]) -> list[Sample]:
    step = max(1, math.ceil(len(life) / MOST))
    return life[::step]


def _kendall(values: Sequence[float]) -> tuple[float, float]:
    """Mann's and Kendall's S, and its variance without a trend; ties lower it."""
    count = len(values)
    score = sum((b > a) - (b < a) for a, b in combinations(values, 2))
    ties = [values.count(one) for one in set(values)]
    whole = count * (count - 1) * (2 * count + 5) - sum(t * (t - 1) * (2 * t + 5) for t in ties)
    return float(score), whole / 18.0
