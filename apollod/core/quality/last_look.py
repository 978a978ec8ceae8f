"""Figures of the last look for each metric, for display. Pure."""

from functools import lru_cache
from typing import NamedTuple

from apollod.core.quality.baseline import Baseline, drops
from apollod.core.quality.looking import compared_with, standing, worse
from apollod.core.quality.sequential import interval
from apollod.core.quality.state import QualityState
from apollod.core.settings import QualitySettings


class Figures(NamedTuple):
    """The figures of a metric, in its unit. `value`, `drop` (positive is worse) and its interval (95 %) are those of
    the last look, None if it measured none of its items."""

    name: str
    value: float | None
    baseline: float
    drop: float | None
    low: float | None
    high: float | None
    margin: float
    alarmed: bool
    """the open alarm names this metric"""


def last_look(own: QualityState, settings: QualitySettings) -> list[Figures]:
    """Figures of each metric of the baseline, and of lessons, ordered by name; empty without a baseline."""
    worse_ones = own.incident.metrics if own.incident is not None else ()
    before = compared_with(own, own.last)
    return [_figures(own, settings, name, one, name in worse_ones) for name, one in sorted(before.items())]


def _figures(own: QualityState, settings: QualitySettings, name: str, before: Baseline, alarmed: bool) -> Figures:
    test = standing(own, name, settings, before)
    look = own.last.get(name, {})
    found = drops(before, look, worse(name), test.scale)
    measured = [value for item, value in look.items() if value is not None and item in before.figures]
    low, high = _interval(tuple(found), test.scale) if found else (None, None)
    return Figures(
        name, _mean(measured), _mean([*before.figures.values()]) or 0.0, _mean(found), low, high, test.margin, alarmed
    )


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


@lru_cache(maxsize=64)
def _interval(found: tuple[float, ...], scale: float) -> tuple[float, float]:
    """The interval of a metric. Cached: it takes milliseconds, and every status asks for it."""
    return interval(found, scale)
