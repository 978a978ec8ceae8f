"""The baseline: figures of the probe items at a known state of the model, with which looks are paired. Pure.

A baseline is measured several times on the same weights. If the runs agree, answers do not vary and the baseline is
exact. If they differ (answers are sampled, batches round differently) its mean has a random error, which enters every
later look; `allowance` bounds it, and is added to the margin.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

RUNS_MIN = 2
Z = 3.29
"""quantile of the normal distribution exceeded with probability 1 in 2,000"""

Worse = Literal["lower", "higher"]
"""The worse direction of a metric: lower for a pass rate, higher for a loss."""


class Baseline(msgspec.Struct, frozen=True):
    """Figure of each item (1 passed, 0 not; or a real one), and the largest error of their mean."""

    figures: dict[str, float]
    allowance: float


def baseline_of(runs: Sequence[Mapping[str, float]]) -> Baseline:
    """Item -> figure of each run, at least RUNS_MIN runs of the same items; else ValueError.

    allowance = Z * sqrt(sum over items of s**2 / runs) / items, s**2 the variance of an item's figures: only what
    varies on the same weights, not how much items differ."""
    if len(runs) < RUNS_MIN or not runs[0] or any(run.keys() != runs[0].keys() for run in runs):
        raise ValueError(f"{len(runs)} runs: at least {RUNS_MIN} of the same items are needed to know what varies")
    figures, variance = {}, 0.0
    for item in sorted(runs[0]):
        own = [run[item] for run in runs]
        figures[item] = math.fsum(own) / len(own)
        variance += math.fsum((one - figures[item]) ** 2 for one in own) / (len(own) - 1)
    return Baseline(figures, Z * math.sqrt(variance / len(runs)) / len(figures))


def drops(before: Baseline, look: Mapping[str, float | None], worse: Worse, scale: float) -> list[float]:
    """The drop of each item of a look, ordered by name, for `sequential.seen`.

    An item that was asked and has no figure (None) counts as not passed (0), or as worse by `scale`. Items that the
    baseline lacks are left out."""
    sign = 1.0 if worse == "lower" else -1.0
    return [
        (before.figures[item] if worse == "lower" else scale)
        if figure is None
        else sign * (before.figures[item] - figure)
        for item, figure in sorted(look.items(), key=lambda one: one[0])
        if item in before.figures
    ]
