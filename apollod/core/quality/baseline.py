"""The baseline: figures of the probe items at a known state of the model, with which looks are paired. Pure.

A baseline is measured several times on the same weights. Where the runs agree, answers do not vary and the baseline is
exact. Where they differ (answers are sampled, batches round differently) its mean is off by chance, and the same error
is in every look after it; `allowance` is how much, to be added to the margin.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

RUNS_MIN = 2
Z = 3.29
"""of a normal distribution above which 1 in 2,000 lies"""

Worse = Literal["lower", "higher"]
"""Which figures of a metric are worse than the baseline's: lower of a pass rate, higher of a loss."""


class Baseline(msgspec.Struct, frozen=True):
    """Figure of each item (1 passed, 0 not; or a real one), and by how much their mean may be wrong."""

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
    """The drop of each item of a look, in the order of their names; what `sequential.seen` takes.

    An item that was asked and has no figure (None) counts as not passed (0), or as worse by `scale`. What the baseline
    does not know is left out: it has nothing to be compared with."""
    sign = 1.0 if worse == "lower" else -1.0
    return [
        (before.figures[item] if worse == "lower" else scale)
        if figure is None
        else sign * (before.figures[item] - figure)
        for item, figure in sorted(look.items(), key=lambda one: one[0])
        if item in before.figures
    ]
