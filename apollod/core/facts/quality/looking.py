"""Decides when a look is due, and evaluates its figures. Pure."""

from collections.abc import Mapping
from heapq import nsmallest
from math import ceil
from statistics import fmean
from typing import NamedTuple

import msgspec

from apollod.core.facts.lessons.events import Wording
from apollod.core.facts.lessons.state import LessonsState
from apollod.core.facts.quality.events import Why
from apollod.core.facts.quality.sequential import Baseline, Metric, Worse, baseline_of, drops, metric, seen
from apollod.core.facts.quality.state import QualityState
from apollod.core.settings import QualitySettings

Figures = Mapping[str, Mapping[str, float | None]]
"""Figure of each item, by metric."""

SHARE_MIN = 0.05
"""least share of the probes that a look asks: less is not informative"""

QUIET_S = 5.0
"""seconds without a step after which the end of a window is looked at even after few steps"""

UNLOOKED_MAX = 1000
"""steps after which a look is due at any cost, and, counted from the last good look, one at all probes: half of those
that are remembered (`state.WINDOW_MAX`)"""

PART = 0.5
"""share of the allowed cost for looks at a part of the probes; the rest is for looks at all of them, which alone can
find weights good"""

DOUBT = 3.0
"""e-value of a metric in one look from which all probes are asked next; weights are good if all probes were asked and
no metric reaches it"""

DOUBTS = 100.0
"""growth factor of the e-value of all looks, since all probes were last asked, from which they are asked again"""

TOGETHER = 70.0
"""e-value of all rates together in a look at all probes, from which it is an alarm by itself. With every mean at its
margin at most one look in 1,000 reaches it, for any number of items (binomial tails); 22 failures of 200 reach it"""

LOSS_MARGIN = 0.1
"""largest allowed rise of the loss on probe texts, nats a token; for repetition, the allowed rise of its share"""

MARGINS = {"entropy": 0.5, "length_drift": 1.0}
"""largest allowed fall of the entropy of next tokens, nats; largest allowed change of answer lengths: mean of the
absolute natural logarithm of the ratio"""

LOSS_MAX = 8.0
"""nats a token, as of a guess among 3,000: a text with a higher loss at the baseline is not understood"""

LOSS_SCALES = 10
"""margins to which a drop is clipped, except for rates"""


def worse(name: str) -> Worse:
    """The direction in which a metric gets worse: pass rates fall, and entropy if a model collapses; all others
    rise."""
    return "lower" if is_rate(name) or name == "entropy" else "higher"


def is_rate(name: str) -> bool:
    """True if the metric is a share of answers that pass."""
    return name.endswith(".passed")


def margin_of(name: str, settings: QualitySettings) -> float:
    """The allowed drop of a metric; 0: no alarm, unless it is a rate."""
    if is_rate(name):
        return settings.margin
    if name == "kl" or not settings.kl_margin:
        return settings.kl_margin
    return MARGINS.get(name, LOSS_MARGIN)


def is_watched(name: str, settings: QualitySettings) -> bool:
    """True if a margin is set beyond which the metric raises an alarm."""
    return is_rate(name) or margin_of(name, settings) > 0.0


def tells(name: str, baseline: Baseline, settings: QualitySettings) -> bool:
    """True if a look could raise doubt by this rate, when every item that passed at the baseline fails."""
    failed = drops(baseline, dict.fromkeys(baseline.figures, 0.0), worse(name), 1.0)
    return seen(begun(name, settings, baseline), failed).sharp >= DOUBT


def silent_groups(run: Mapping[str, Mapping[str, float]], settings: QualitySettings) -> tuple[str, ...]:
    """Groups of which the model passes too few in this run for a look to be informative."""
    rates = {name.removesuffix(".passed"): Baseline(dict(run[name]), 0.0) for name in run if is_rate(name)}
    return tuple(
        group
        for group, one in sorted(rates.items())
        if f"{group}.loss" not in run and not tells(f"{group}.passed", one, settings)
    )


def may_alarm(name: str, baseline: Baseline, settings: QualitySettings) -> bool:
    """True if the metric is watched and can get worse: a rate without a pass at the baseline cannot, and does not count
    in the correction for the number of metrics."""
    return is_watched(name, settings) and not (is_rate(name) and not any(baseline.figures.values()))


def begun(name: str, settings: QualitySettings, baseline: Baseline) -> Metric:
    """A metric before its first look. The baseline may be wrong by its allowance, which is added to the margin. Lessons
    are bet on as if each could rise: they fade by themselves, and a few of them are no evidence of harm."""
    margin = margin_of(name, settings)
    scale = 1.0 if is_rate(name) or not margin else LOSS_SCALES * margin
    frozen = is_rate(name) and name != LESSONS and baseline.figures
    failing = 1.0 - fmean(baseline.figures.values()) if frozen else None
    return metric(min(margin + baseline.allowance, scale * 0.99), scale, failing)


def standing(own: QualityState, name: str, settings: QualitySettings, baseline: Baseline) -> Metric:
    """A metric after the looks so far. With another margin it begins anew."""
    new = begun(name, settings, baseline)
    old = own.metrics.get(name)
    return (
        old if old is not None and (old.margin, old.scale, old.failing) == (new.margin, new.scale, new.failing) else new
    )


def baselines(runs: list[dict[str, dict[str, float]]]) -> dict[str, Baseline]:
    """Baselines of the metrics and items that all of these runs have. A text in a language that the model does not know
    (LOSS_MAX) cannot show forgetting, and is left out."""
    found = dict[str, Baseline]()
    for name in sorted(set.intersection(*(set(run) for run in runs))):
        items = sorted(set.intersection(*(set(run[name]) for run in runs)))
        if name.endswith(".loss"):
            items = [item for item in items if all(run[name][item] <= LOSS_MAX for run in runs)]
        if items:
            found[name] = baseline_of([{item: run[name][item] for item in items} for run in runs])
    return found


def known(figures: Figures) -> dict[str, dict[str, float]]:
    """The figures of a run without the items that could not be measured."""
    return {
        name: {item: value for item, value in items.items() if value is not None} for name, items in figures.items()
    }


def compared_with(own: QualityState, figures: Figures) -> dict[str, Baseline]:
    """The baselines of a look's metrics, by name: the measured ones, and that of lessons."""
    lessons = figures.get(LESSONS)
    return own.baseline | ({LESSONS: baseline_of_known(lessons)} if lessons else {})


def looked(own: QualityState, settings: QualitySettings, figures: Figures) -> dict[str, Metric]:
    """Each metric that may raise an alarm, after a look."""
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
    """The rates that fell beyond their margins, the worst first, if in a look at all probes the mean drop of all items
    together is beyond the margin (TOGETHER); empty: it is not. Damage spread over groups of ten or twenty shows here
    first. Lessons are left out: they have no baseline of their own."""
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
    """The most informative items of a metric for a search: for a pass rate, those that passed at the baseline and fail
    now; for others, all that were asked."""
    asked = sorted(item for item in figures if item in baseline.figures)
    if is_rate(name):
        down = [item for item in asked if baseline.figures[item] > 0.5 and (figures[item] or 0.0) < 0.5]
        asked = down or asked
    return tuple(asked)


def speaking(after: Mapping[str, Metric]) -> tuple[str, ...]:
    """Metrics about which the last look by itself raises doubt, by name."""
    return tuple(name for name, one in sorted(after.items()) if one.sharp >= DOUBT)


class Doubt(NamedTuple):
    """Doubt after a look. `ask_all`: it asked a part of the probes, and these, or all looks since the last one at all
    probes, are evidence against a metric. `good`: it asked all, without evidence against any."""

    ask_all: bool
    good: bool


def doubt(after: Mapping[str, Metric], share: float, cleared: Mapping[str, float]) -> Doubt:
    """The doubt that a look leaves. `cleared`: e-value of each metric when all probes were last asked. A few probes may
    fail for good without harm, so growth counts, not the value. A part of the probes can only raise doubt: three of
    each group may miss a drop in half of the others."""
    spoke = bool(speaking(after))
    if share >= 1.0:
        return Doubt(False, not spoke)
    grown = any(one.e_value >= DOUBTS * max(1.0, cleared.get(name, 0.0)) for name, one in after.items())
    return Doubt(spoke or grown, False)


def takes_baseline(own: QualityState) -> bool:
    """True if a new baseline may be measured now: without an alarm, or if the weights restored after one could not be
    compared with the baseline in force. Once begun, its runs are completed."""
    return own.incident is None or bool(own.unmeasured and (own.retry.failures or own.runs))


def due(own: QualityState, settings: QualitySettings, quiet: bool = False) -> Why | None:
    """Reason for a measurement that is due; None: none. Nothing is learned before it. `quiet`: nothing waits to be
    learned, so that the end of a window can be looked at even after few steps."""
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
    """True if weights are looked at before they are saved. Not after a failed look: learned steps must not be lost."""
    return bool(
        settings.every_steps
        and own.baseline
        and (own.since or own.doubt)
        and not own.retry.failures
        and own.incident is None
    )


def affordable(own: QualityState, settings: QualitySettings) -> float:
    """Share of the probes, up to 1, that the time of the steps since the last look allows."""
    if not settings.cost or not own.full_s:
        return 1.0
    return min(1.0, PART * settings.cost * own.busy_s / own.full_s)


def whole_is_due(own: QualityState, settings: QualitySettings) -> bool:
    """True if the time of the steps since all probes were last asked allows asking them again, or if the steps since
    the last good look will soon exceed those remembered."""
    paid = (1.0 - PART) * settings.cost * own.busy_since_whole_s >= own.full_s > 0.0
    return paid or len(own.since_good) >= UNLOOKED_MAX


def least_share(own: QualityState) -> float:
    """Least share of all probes that a look asks: a few of each group."""
    groups = [len(one.figures) for name, one in own.baseline.items() if name.endswith((".passed", ".loss"))]
    return max(SHARE_MIN, sum(min(LEAST, items) for items in groups) / sum(groups)) if groups else SHARE_MIN


def quiet_s(own: QualityState, settings: QualitySettings) -> float:
    """Seconds without a step after which a look is allowed: idle time counts like that of steps."""
    if not settings.cost:
        return QUIET_S
    return max(QUIET_S, least_share(own) * own.full_s / (PART * settings.cost) - own.busy_s)


def share(own: QualityState, settings: QualitySettings, why: Why) -> float:
    """Share of each group of probes that a look asks, rounded to thousandths."""
    if why in ("baseline", "settled", "doubt", "asked", "restored") or whole_is_due(own, settings):
        return 1.0
    return round(max(SHARE_MIN, affordable(own, settings)), 3)


# Known lessons in looks: a group of their own, with a lesson as an item.
#
# An item is compared with its own known state: all of its held-out wordings passed when the lesson was shown to be
# known. So a lesson joins without a new baseline, and one that is replaced, forgotten or fading leaves without an
# alarm. A look asks a bounded number of them, in turn.
#
# Only lessons shown lately count for an alarm. Lessons fade by themselves over time, and of a thousand most were last
# asked long ago: their failures do not concern the steps since the last good look, and going back would not repair
# them. They are asked again and practised, and count from then on.

GROUP = "lessons"
LESSONS = f"{GROUP}.passed"
"""the metric: share of a lesson's held-out wordings that pass, answered bare and greedily"""
OLDER = f"{GROUP}.older"
"""the same for lessons shown long ago, which raises no alarm"""
RECENT = 1000
"""steps since a lesson was shown for which it counts"""
LESSONS_MAX = 16
"""lessons in a look at all probes: 8 of them have to fail entirely for one look to raise an alarm"""
LEAST = 3
"""least number of items of each group in a look, if it has as many: fewer could not raise doubt even if all failed,
upon which everything is asked (`looking.doubt`)"""


class LessonCase(msgspec.Struct, frozen=True, gc=False):
    """A known lesson in a look. `not_these`: answers that are wrong now, see `AskLesson`."""

    lesson: str
    wordings: tuple[Wording, ...]
    not_these: tuple[str, ...] = ()


def is_asked(own: LessonsState, lesson: str) -> bool:
    """True if looks ask the lesson: it is known and worded."""
    one = own.lessons.get(lesson)
    return one is not None and one.state == "known" and one.worded is not None


def is_recent(own: LessonsState, lesson: str, version: int) -> bool:
    """True if the lesson was shown at most RECENT steps before these weights."""
    return version - own.lessons[lesson].shown <= RECENT


def in_turn(own: LessonsState, version: int, share: float) -> tuple[str, ...]:
    """Ids of the lessons that a look asks at this share of the probes (0 to 1): those shown lately, then others, in
    both the one looked at longest ago first."""
    turns = (
        (not is_recent(own, id_, version), one.looked, int(id_[1:]))
        for id_, one in own.lessons.items()
        if is_asked(own, id_)
    )
    count = max(LEAST, ceil(share * LESSONS_MAX - 1e-9))
    return tuple(f"L{number}" for _, _, number in nsmallest(count, turns))


def counted(own: LessonsState, figures: Mapping[str, float | None], version: int) -> dict[str, dict[str, float | None]]:
    """The figures of lessons by metric, without those that were replaced or forgotten while they were asked."""
    found: dict[str, dict[str, float | None]] = {}
    for lesson, value in figures.items():
        if is_asked(own, lesson):
            found.setdefault(LESSONS if is_recent(own, lesson, version) else OLDER, {})[lesson] = value
    return found


def baseline_of_known(figures: Mapping[str, float | None]) -> Baseline:
    """The baseline of lessons: every wording passed when each was shown to be known."""
    return Baseline(dict.fromkeys(figures, 1.0), 0.0)
