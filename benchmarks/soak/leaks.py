"""Finds leaks: figures of a process that rise during its life, by more than a bound. Pure.

Samples of each life of a process count after a warm-up; a life with fewer than `LEAST` of them is ignored. The slope is
the median of all slopes between two samples of the same life (Theil 1950, Sen 1968), over all lives of the same role; a
few high samples do not move it. It has to exceed the bound, and significantly rise: the Kendall statistics of the
lives, added up (seasonal Kendall test: Hirsch, Slack and Smith 1982, doi:10.1029/WR018i001p00107), lie `SURE` standard
deviations above their mean without a trend. Figures that rise and then stay, like caches, are excluded by the warm-up:
the first `WARM_S` seconds, and `WARM_SHARE` of the life if that is longer.
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
"""least total time of all lives after the warm-up, below which no leak is reported"""
SURE = 3.0
MOST = 200
"""most samples of a life that are compared, evenly chosen"""
HOUR = 3600.0
MIB = 1 << 20

BOUNDS: dict[str, float] = {
    "anonymous": 32.0 * MIB, "descriptors": 6.0, "threads": 4.0, "memory_files": 4.0 * MIB,
}  # fmt: skip
"""Growth in an hour that is not a leak: of allocated memory, which varies with requests, and of numbers."""

Sample = tuple[float, float]
"""(seconds, figure)"""


class Trend(NamedTuple):
    """`slope`: per hour; `sure`: standard deviations above no trend; `seconds`, `lives`: amount of data; `told`: is it
    enough for a statement?"""

    slope: float
    sure: float
    seconds: float
    lives: int
    told: bool


def trend(lives: Iterable[Sequence[Sample]]) -> Trend:
    """The trend of one figure of one role, from its samples by life."""
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
    """Does the figure rise by more than its bound, significantly?"""
    return found.told and found.slope > BOUNDS[figure] and found.sure > SURE


def after_warm_up(life: Sequence[Sample]) -> list[Sample]:
    """The samples of a life, in the order of time, without its beginning."""
    if not life:
        return []
    first, last = life[0][0], life[-1][0]
    warm = first + max(WARM_S, WARM_SHARE * (last - first))
    return [one for one in life if one[0] >= warm]


def _thinned(life: list[Sample]) -> list[Sample]:
    step = max(1, math.ceil(len(life) / MOST))
    return life[::step]


def _kendall(values: Sequence[float]) -> tuple[float, float]:
    """Mann and Kendall's S, and its variance without a trend; ties lower it."""
    count = len(values)
    score = sum((b > a) - (b < a) for a, b in combinations(values, 2))
    ties = [values.count(one) for one in set(values)]
    whole = count * (count - 1) * (2 * count + 5) - sum(t * (t - 1) * (2 * t + 5) for t in ties)
    return float(score), whole / 18.0
