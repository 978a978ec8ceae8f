"""Looks: when one is due, and what it says of each metric. Pure."""

from collections.abc import Mapping
from typing import NamedTuple

from apollod.core.quality.baseline import Baseline, Worse, baseline_of, drops
from apollod.core.quality.events import Why
from apollod.core.quality.lesson_group import LEAST, LESSONS, baseline_of_known
from apollod.core.quality.sequential import Metric, metric, seen
from apollod.core.quality.state import QualityState
from apollod.core.settings import QualitySettings

Figures = Mapping[str, Mapping[str, float | None]]
"""By metric, of each item."""

SHARE_MIN = 0.05
"""of the probes, however little time there is: less says nothing"""

QUIET_S = 5.0
"""without a step, after which the end of a window is looked at even if its steps were few"""

UNLOOKED_MAX = 1000
"""steps, after which a look is due whatever it costs, and one at all probes since the last good one: half of those that
are remembered (`state.WINDOW_MAX`)"""

PART = 0.5
"""of what looks may cost, for those at a part of the probes; the other half is for those at all of them, which alone
make weights good"""

DOUBT = 3.0
"""e-value of a metric in one look, from which on all probes are asked; weights are good where all were, and none has
it"""

DOUBTS = 100.0
"""times that the e-value of all looks has grown since all probes were asked, from which on they are asked again"""

TOGETHER = 60.0
"""e-value of all rates together in a look at all probes, from which on it is an alarm by itself. With every mean at its
margin at most one look in 1,000 has it, however many items there are (binomial tails); 15 of 100 that fail have it"""

LOSS_MAX = 8.0
"""nats a token, as of a guess among 3,000: a text that is no more likely at the baseline is not understood"""

LOSS_SCALES = 10
"""margins beyond which a drop counts as so much, of anything but a rate"""


def worse(name: str) -> Worse:
    """The direction in which a metric gets worse: pass rates fall, and entropy where a model collapses; everything else
    rises."""
    return "lower" if is_rate(name) or name == "entropy" else "higher"


def is_rate(name: str) -> bool:
    """True if the metric is a share of answers that pass."""
    return name.endswith(".passed")


def margin_of(name: str, settings: QualitySettings) -> float:
    """The allowed drop of a metric; 0: it never raises an alarm, unless it is a rate."""
    own = {"kl": settings.kl_margin, "entropy": settings.entropy_margin, "length_drift": settings.length_margin}
    return settings.margin if is_rate(name) else own.get(name, settings.loss_margin)


def is_watched(name: str, settings: QualitySettings) -> bool:
    """True if a margin is set beyond which the metric raises an alarm."""
    return is_rate(name) or margin_of(name, settings) > 0.0


def tells(name: str, baseline: Baseline, settings: QualitySettings) -> bool:
    """True if a look could raise doubt by this rate: one in which all that passed at the baseline fails."""
    failed = drops(baseline, dict.fromkeys(baseline.figures, 0.0), worse(name), 1.0)
    return seen(begun(name, settings, baseline), failed).alone >= DOUBT


def silent_groups(run: Mapping[str, Mapping[str, float]], settings: QualitySettings) -> tuple[str, ...]:
    """Groups of which the model passes too few in this run for a look to say anything: asking them is time lost."""
    rates = {name.removesuffix(".passed"): Baseline(dict(run[name]), 0.0) for name in run if is_rate(name)}
    return tuple(
        group
        for group, one in sorted(rates.items())
        if f"{group}.loss" not in run and not tells(f"{group}.passed", one, settings)
    )


def may_alarm(name: str, baseline: Baseline, settings: QualitySettings) -> bool:
    """True if the metric is watched and can get worse: a rate of which nothing passed at the baseline cannot, and does
    not count among those from which an alarm has to stand out."""
    return is_watched(name, settings) and not (is_rate(name) and not any(baseline.figures.values()))


def begun(name: str, settings: QualitySettings, baseline: Baseline) -> Metric:
    """A metric that was not looked at. The baseline may be wrong by its allowance, so that much is no drop."""
    margin = margin_of(name, settings)
    scale = 1.0 if is_rate(name) or not margin else LOSS_SCALES * margin
    return metric(min(margin + baseline.allowance, scale * 0.99), scale)


def standing(own: QualityState, name: str, settings: QualitySettings, baseline: Baseline) -> Metric:
    """A metric as the looks so far left it. What they said of another margin does not count: it begins anew."""
    new = begun(name, settings, baseline)
    old = own.metrics.get(name)
    return old if old is not None and (old.margin, old.scale) == (new.margin, new.scale) else new


def baselines(runs: list[dict[str, dict[str, float]]]) -> dict[str, Baseline]:
    """Baselines of the metrics, and in them of the items, that all of these runs have. A text that the model does not
    know the language of (LOSS_MAX) says nothing about what it forgets, and is left out."""
    found = dict[str, Baseline]()
    for name in sorted(set.intersection(*(set(run) for run in runs))):
        items = sorted(set.intersection(*(set(run[name]) for run in runs)))
        if name.endswith(".loss"):
            items = [item for item in items if all(run[name][item] <= LOSS_MAX for run in runs)]
        if items:
            found[name] = baseline_of([{item: run[name][item] for item in items} for run in runs])
    return found


def known(figures: Figures) -> dict[str, dict[str, float]]:
    """The figures of a run without the items that could not be measured: a baseline says nothing about those."""
    return {
        name: {item: value for item, value in items.items() if value is not None} for name, items in figures.items()
    }


def compared_with(own: QualityState, figures: Figures) -> dict[str, Baseline]:
    """The baselines of a look's metrics, by name: the measured ones, and that of lessons."""
    lessons = figures.get(LESSONS)
    return own.baseline | ({LESSONS: baseline_of_known(lessons)} if lessons else {})


def looked(own: QualityState, settings: QualitySettings, figures: Figures) -> dict[str, Metric]:
    """Each metric after a look, of those that may raise an alarm."""
    after = dict[str, Metric]()
    for name, baseline in compared_with(own, figures).items():
        if not may_alarm(name, baseline, settings):
            continue
        before = standing(own, name, settings, baseline)
        after[name] = seen(before, drops(baseline, figures.get(name, {}), worse(name), before.scale))
    return after


def fallen_together(
    own: QualityState, settings: QualitySettings, after: Mapping[str, Metric], figures: Figures
) -> tuple[str, ...]:
    """The rates that fell beyond their margins, the worst first, where a look at all probes says of all items together
    that their mean is beyond the margin (TOGETHER); empty: it does not. Damage that is spread over groups of ten or
    twenty shows here first. Lessons are left out: they have no baseline of their own."""
    rates = [name for name in after if is_rate(name) and name in own.baseline]
    found = {name: drops(own.baseline[name], figures.get(name, {}), "lower", 1.0) for name in rates}
    every = [drop for one in found.values() for drop in one]
    if not every:
        return ()
    allowance = sum(own.baseline[name].allowance * len(one) for name, one in found.items()) / len(every)
    if seen(metric(min(settings.margin + allowance, 0.99)), every).alone < TOGETHER:
        return ()
    fell_ = [name for name in rates if after[name].drop > after[name].margin]
    return tuple(sorted(fell_, key=lambda name: (-after[name].drop, name)))


def fell(baseline: Baseline, name: str, figures: Mapping[str, float | None]) -> tuple[str, ...]:
    """The items of a metric that tell best who did harm: those that passed at the baseline and do not any more; of
    anything else than a pass rate, all that were asked."""
    asked = sorted(item for item in figures if item in baseline.figures)
    if is_rate(name):
        down = [item for item in asked if baseline.figures[item] > 0.5 and (figures[item] or 0.0) < 0.5]
        asked = down or asked
    return tuple(asked)


def speaking(after: Mapping[str, Metric]) -> tuple[str, ...]:
    """The metrics against which the last look speaks by itself, by name."""
    return tuple(name for name, one in sorted(after.items()) if one.alone >= DOUBT)


class Doubt(NamedTuple):
    """Doubt after a look. `ask_all`: it asked a part of the probes, and they or all looks since the last one at all of
    them speak against a metric. `good`: it asked all, and they speak against none."""

    ask_all: bool
    good: bool


def doubt(after: Mapping[str, Metric], share: float, cleared: Mapping[str, float]) -> Doubt:
    """The doubt that a look leaves. `cleared`: e-value of each metric when all probes were asked last. What few probes
    have once failed may stay so for good, and harm nothing: so growth counts, and not the value. A part of the probes
    can only raise doubt: three of each group miss what half of the others would show."""
    spoke = bool(speaking(after))
    if share >= 1.0:
        return Doubt(False, not spoke)
    grown = any(one.e_value >= DOUBTS * max(1.0, cleared.get(name, 0.0)) for name, one in after.items())
    return Doubt(spoke or grown, False)


def takes_baseline(own: QualityState) -> bool:
    """True if a new baseline may be measured now: without an alarm, or where the weights that came back after one could
    not be compared with the one in force. Its runs follow each other."""
    return own.incident is None or bool(own.unmeasured and (own.retry.failures or own.runs))


def due(own: QualityState, settings: QualitySettings, quiet: bool = False) -> Why | None:
    """The reason for which a measurement is due; None: none is. Nothing is learned before it. `quiet`: nothing waits to
    be learned, so that the end of a window can be looked at however few steps it had."""
    if own.unmeasured and not (own.asked == "baseline" and takes_baseline(own)):
        return "restored"
    if own.asked == "baseline":
        return "baseline"
    if own.asked:
        asked: Why = own.asked if own.asked in ("checkpoint", "settled") else "asked"
        return asked if own.baseline else "baseline"
    if not settings.every_steps or own.unable:
        return None
    if not own.baseline:
        return "baseline"
    if own.doubt:
        return "doubt"
    if not own.since:
        return None
    paid = affordable(own, settings) >= least_share(own) or own.since >= UNLOOKED_MAX or whole_is_due(own, settings)
    if paid and own.since >= settings.every_steps:
        return "steps"
    return "window" if own.window_ended and (quiet or paid) else None


def before_checkpoint(own: QualityState, settings: QualitySettings) -> bool:
    """True if weights are looked at before they are saved. Not where that failed: what was learned must not be lost."""
    return bool(
        settings.every_steps
        and own.baseline
        and (own.since or own.doubt)
        and not own.retry.failures
        and own.incident is None
    )


def affordable(own: QualityState, settings: QualitySettings) -> float:
    """The share of the probes that may be asked for the time that the steps since the last look took, up to 1."""
    if not settings.cost or not own.full_s:
        return 1.0
    return min(1.0, PART * settings.cost * own.busy_s / own.full_s)


def whole_is_due(own: QualityState, settings: QualitySettings) -> bool:
    """True if the time of the steps since all probes were asked last pays for asking them again, or so many steps were
    learned since the last good look that some are forgotten soon."""
    paid = (1.0 - PART) * settings.cost * own.busy_since_whole_s >= own.full_s > 0.0
    return paid or len(own.since_good) >= UNLOOKED_MAX


def least_share(own: QualityState) -> float:
    """The share of all probes that a look asks at least: a few of each group."""
    groups = [len(one.figures) for name, one in own.baseline.items() if name.endswith((".passed", ".loss"))]
    return max(SHARE_MIN, sum(min(LEAST, items) for items in groups) / sum(groups)) if groups else SHARE_MIN


def quiet_s(own: QualityState, settings: QualitySettings) -> float:
    """Seconds without a step, after which a look is paid for: time in which nothing waits counts like that of steps."""
    if not settings.cost:
        return QUIET_S
    return max(QUIET_S, least_share(own) * own.full_s / (PART * settings.cost) - own.busy_s)


def share(own: QualityState, settings: QualitySettings, why: Why) -> float:
    """The share of each group of probes that a look asks, in thousandths."""
    if why in ("baseline", "settled", "doubt", "asked", "restored") or whole_is_due(own, settings):
        return 1.0
    return round(max(SHARE_MIN, affordable(own, settings)), 3)
