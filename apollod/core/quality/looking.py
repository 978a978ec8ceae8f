"""What a look says of each metric, and when one is due. Pure."""

from collections.abc import Mapping

from apollod.core.quality.baseline import Baseline, Worse, baseline_of, drops
from apollod.core.quality.sequential import Metric, metric, seen
from apollod.core.quality.state import QualityState
from apollod.core.settings import QualitySettings

Figures = Mapping[str, Mapping[str, float | None]]
"""By metric, of each item."""

LOSS_SCALES = 10
"""margins of a loss beyond which a drop counts as so much"""


def worse(name: str) -> Worse:
    """Which way is worse: pass rates fall, everything else rises."""
    return "lower" if name.endswith(".passed") else "higher"


def begun(name: str, settings: QualitySettings, baseline: Baseline) -> Metric:
    """A metric that was not looked at. The baseline may be wrong by its allowance, so that much is no drop."""
    rate = name.endswith(".passed")
    margin = settings.margin if rate else settings.loss_margin
    scale = 1.0 if rate else LOSS_SCALES * settings.loss_margin
    return metric(min(margin + baseline.allowance, scale * 0.99), scale)


def baselines(runs: list[dict[str, dict[str, float]]]) -> dict[str, Baseline]:
    """Of runs over the same items: of the metrics, and in them of the items, that every run has."""
    found = dict[str, Baseline]()
    for name in sorted(set.intersection(*(set(run) for run in runs))):
        items = sorted(set.intersection(*(set(run[name]) for run in runs)))
        if items:
            found[name] = baseline_of([{item: run[name][item] for item in items} for run in runs])
    return found


def known(figures: Figures) -> dict[str, dict[str, float]]:
    """Without what could not be measured: a baseline has nothing to say about that."""
    return {
        name: {item: value for item, value in items.items() if value is not None} for name, items in figures.items()
    }


def looked(own: QualityState, settings: QualitySettings, figures: Figures) -> dict[str, Metric]:
    """Each metric after a look."""
    after = dict[str, Metric]()
    for name, baseline in own.baseline.items():
        before = own.metrics.get(name) or begun(name, settings, baseline)
        after[name] = seen(before, drops(baseline, figures.get(name, {}), worse(name), before.scale))
    return after


def due(own: QualityState, settings: QualitySettings, step: int) -> str:
    """Why a measurement is due, as `Why`; empty: none is. Nothing is learned before it."""
    if own.asked == "baseline":
        return "baseline"
    if own.asked:
        return "asked" if own.baseline else "baseline"
    if not settings.every_steps:
        return ""
    if not own.baseline:
        return "baseline"
    return "steps" if abs(step - max(own.looked, own.at)) >= settings.every_steps else ""
