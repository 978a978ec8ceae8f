"""A sequential test for a metric that is worse than its baseline by more than a margin. It is valid after every look.
Pure.

A look is a sample of the frozen probe items; of each there is its drop, baseline minus now, turned so that positive is
worse. H0: the mean drop is at most `margin`. One look gives an e-value by betting (Waudby-Smith and Ramdas 2024,
"Estimating means of bounded random variables by betting", arXiv:2010.09686): with drops d in units of `scale`, clipped
to [-1, 1], and a bet b,

    L_b = product over items of 1 + b * (d - margin),    0 < b < 1 / (1 + margin)

All items of a look have the same bet, because then the mean of L_b is at most 1 under H0 in each of three readings:

- the items are the whole truth and their answers are sampled, each with a mean of its own: by the inequality of
  arithmetic and geometric means the mean of the product is at most (1 + b * (mean drop - margin)) ** n;
- a look takes k of n items at random: a sum without replacement is not more spread in convex order than one with it
  (Hoeffding 1963, theorem 4), and the product is a convex function of a sum of logarithms;
- the items are a sample of what the model is used for: independent, and the same for all.

Looks are paired with one baseline, and weights change in between. A martingale of all looks since the baseline would
become too small to detect a drop: each look without one reduces it. Instead we keep an e-detector of Shiryaev and
Roberts (Shin, Ramdas and Rinaldo 2023, "E-detectors", arXiv:2203.03532), one for each bet,

    M_b <- (M_b + 1) * L_b,    e-value: mean of M_b over BETS (method of mixtures)

Its mean at any stopping time is at most the number of looks until then, with any dependence on earlier looks, as long
as H0 holds given those. So the mean number of looks to a false alarm at threshold c is at least c, and a false alarm is
among the first T looks with a probability of at most T / c. Of many metrics the sum counts, with the threshold times
their number: averages of e-values are e-values under any dependence (Vovk and Wang 2021, "E-values: calibration,
combination and applications", arXiv:1912.06116).

Repeated answers to the same few items are not more evidence about the population: harmless training makes some items
fail for long. So the last look alone, in the third reading, has to be evidence against H0 as well, with an e-value of
`ALONE`. Both conditions together can only alarm less often than one.

Large damage need not be seen twice: a look at all probes is an alarm by itself if its e-value against "the mean drop is
at most `FAR` margins" reaches `ALONE`.

A rate is judged in one look by a sharper e-value besides. An item that passed at the baseline cannot rise, and one that
failed cannot fall, so that with the share q of items that failed at the baseline the drop is 1 with a probability of at
most margin + q and -1 with at most q, and for every tilt t > 0

    L_t = product over items of exp(t * d) / (1 + (margin + q) * (exp(t) - 1) - q * (1 - exp(-t)))

has a mean of at most 1 in the same readings: exp is convex, so that the mean is largest at the ends of what a drop can
be, and the more items rise, the larger it is (in the third reading q is that of the population, for which the group
stands). Where nearly all items passed, which is how a person writes a group of ten or twenty, this is the likelihood
ratio of a binomial test, and ten times as sure as a bet that has to allow for a rise of every item. The mean over all
bets and tilts raises doubt, and is an alarm from `SURE` in a look at all probes: of a group of which all items passed
6 of 10, 8 of 24, 10 of 40, 15 of 75 or 24 of 180, which with every mean at its margin of 0.05 at most 2 looks in
100,000 have by chance (binomial tails). It is kept out of the detectors: harmless training leaves a few items of a
small group failing for hundreds of looks, and the same answers, counted again, would become an alarm.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

LOOKS = 1000.0
"""least mean number of looks to a false alarm, over all metrics together"""
ALONE = 20.0
"""least e-value of the last look by itself, for an alarm"""
SURE = 1000.0
"""sharper e-value of one look at all probes that suffices"""
FAR = 2.0
"""margins beyond which one look at all probes suffices"""
BETS = (1 / 8, 1 / 4, 1 / 2, 15 / 16)
"""shares of the largest bet"""
TILTS = (0.5, 1.0, 2.0)
"""tilts of a rate: at a margin of 0.05 they grow fastest if 0.08, 0.13 or 0.28 of the items fell. With a larger one a
single item that fails would raise doubt"""
E_MAX = 1e15
"""upper limit of e-values"""
_HALVINGS = 30


class Metric(msgspec.Struct, frozen=True):
    """The evidence about a metric. `margin` and `scale`: in its unit, 0 <= margin < scale; a drop beyond `scale` counts
    as `scale` (1 for a share of items that pass)."""

    margin: float
    scale: float
    failing: float | None = None
    """of a rate: share of its items that failed at the baseline"""
    looks: int = 0
    detectors: tuple[float, ...] = (0.0,) * len(BETS)
    """Shiryaev-Roberts statistic of each bet"""
    drop: float = 0.0
    """mean of the last look, clipped, in the metric's unit"""
    alone: float = 0.0
    """e-value of the last look by itself"""
    sharp: float = 0.0
    """the same with the tilts of a rate"""
    far: float = 0.0
    """the same against "the mean drop is at most `FAR` margins\""""

    @property
    def e_value(self) -> float:
        """Evidence against "the mean drop is at most the margin", its mean is at most `looks` while that is true."""
        return math.fsum(self.detectors) / len(self.detectors)


def metric(margin: float, scale: float = 1.0, failing: float | None = None) -> Metric:
    """A metric before its first look. `failing`: see `Metric`. ValueError unless 0 <= margin < scale, both finite."""
    if not (0.0 <= margin < scale < math.inf):
        raise ValueError(f"a margin of {margin:g} with a scale of {scale:g}: 0 <= margin < scale is needed")
    return Metric(margin, scale, failing)


def seen(before: Metric, drops: Sequence[float]) -> Metric:
    """The metric after a look. `drops`: of its items in the metric's unit, positive is worse, in any order. ValueError
    for NaN. A look without items changes nothing."""
    if not drops:
        return before
    counts, margin = _counted(drops, before.scale), before.margin / before.scale
    factors = [_factor(counts, margin, bet) for bet in BETS]
    far = [_factor(counts, min(1.0, FAR * margin), bet) for bet in BETS]
    tilted = [] if before.failing is None else [_tilted(counts, margin, before.failing, tilt) for tilt in TILTS]
    return msgspec.structs.replace(
        before,
        looks=before.looks + 1,
        detectors=tuple(min(E_MAX, (m + 1.0) * f) for m, f in zip(before.detectors, factors, strict=True)),
        drop=before.scale * math.fsum(value * count for value, count in counts.items()) / len(drops),
        alone=math.fsum(factors) / len(factors),
        sharp=math.fsum([*factors, *tilted]) / (len(factors) + len(tilted)),
        far=math.fsum(far) / len(far),
    )


def renewed(before: Metric) -> Metric:
    """The metric after a rollback or a new baseline: evidence about other weights does not count."""
    return Metric(before.margin, before.scale, before.failing)


def alarmed(one: Metric, metrics: int = 1) -> bool:
    """True if the metric is worse by more than its margin, as one of so many `metrics`."""
    return one.alone >= ALONE and one.e_value >= LOOKS * metrics


def alarms(metrics: Mapping[str, Metric], whole: bool = False) -> tuple[str, ...]:
    """The metrics that are worse, the most certain first; empty: no alarm. All share one bound on false alarms
    (`LOOKS`); several that are each less certain than `alarmed` demands may suffice together. `whole`: the last look
    asked all probes, so that one metric of which it is sure suffices."""
    speaking = {name: one.e_value for name, one in metrics.items() if one.alone >= ALONE}
    surest = sorted(speaking, key=lambda name: (-speaking[name], name))
    sure = [name for name in surest if speaking[name] >= LOOKS] or surest[:1]
    if math.fsum(speaking.values()) < LOOKS * len(metrics):
        sure = []
    one_look = {name for name, one in metrics.items() if whole and (one.sharp >= SURE or one.far >= ALONE)}
    return tuple(sorted({*sure, *one_look}, key=lambda name: (-metrics[name].e_value, name)))


def interval(drops: Sequence[float], scale: float, level: float = 0.95) -> tuple[float, float]:
    """The mean drops, clipped to `scale`, that one look alone does not rule out, in the metric's unit: a confidence
    interval at `level` for the population mean. Both ends by betting as above, each at half of the error; without items
    the whole range."""
    if not drops:
        return -scale, scale
    counts, enough = _counted(drops, scale), 2.0 / (1.0 - level)
    mirrored = {-value: count for value, count in counts.items()}
    return scale * _lower_end(counts, enough), -scale * _lower_end(mirrored, enough)


def _lower_end(counts: Mapping[float, int], enough: float) -> float:
    """The largest mean, -1 to 1, against which there is an e-value of `enough`; -1 if there is none."""
    low, high = -1.0, math.fsum(value * count for value, count in counts.items()) / sum(counts.values())
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        against = math.fsum(_factor(counts, middle, bet) for bet in BETS) / len(BETS)
        low, high = (middle, high) if against >= enough else (low, middle)
    return low


def _counted(drops: Sequence[float], scale: float) -> dict[float, int]:
    """The count of each drop, in units of `scale`, clipped; ascending, so that sums do not depend on the order."""
    if any(math.isnan(drop) for drop in drops):
        raise ValueError("a drop that is not a number: an item without a figure counts as its worst")
    return dict(sorted(Counter(min(1.0, max(-1.0, drop / scale)) for drop in drops).items()))


def _tilted(counts: Mapping[float, int], margin: float, failing: float, tilt: float) -> float:
    """L of one look for a tilt."""
    rise = min(failing, max(0.0, 1.0 - failing - margin))
    fall = min(rise + margin, 1.0 - failing)
    most = math.log1p(fall * math.expm1(tilt) + rise * math.expm1(-tilt))
    logarithm = math.fsum(count * (tilt * value - most) for value, count in counts.items())
    return math.exp(min(logarithm, math.log(E_MAX)))


def _factor(counts: Mapping[float, int], margin: float, bet: float) -> float:
    """L of one look for a bet given as a share of the largest."""
    stake = bet / (1.0 + margin) if margin > -1.0 else 0.0
    logarithm = math.fsum(count * math.log1p(stake * (value - margin)) for value, count in counts.items())
    return math.exp(min(logarithm, math.log(E_MAX)))


# The baseline: figures of the probe items at a known state of the model, with which looks are paired.
#
# A baseline is measured several times on the same weights. If the runs agree, answers do not vary and the baseline is
# exact. If they differ (answers are sampled, batches round differently) its mean has a random error, which enters every
# later look; `allowance` bounds it, and is added to the margin.

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
