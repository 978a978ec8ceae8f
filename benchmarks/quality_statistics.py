"""Simulates how often the quality guard alarms without a cause, how soon with one, and how many replays find culprits.
By simulation.

Guards of METRICS pass rates over ITEMS frozen items each, at a margin of MARGIN. Without a cause: the same weights with
answers that come out otherwise now and then (`flaky`) or are sampled (`sampled`, against a baseline of three runs), the
same with losses (`loss`), harmless training that moves items up and down for many looks with a mean drop of nothing
(`harmless`, `harmless_200`: with 200 items), and what H0 just allows: answers drawn anew at every look with a mean drop
of exactly the margin (`margin`). With one: after QUIET looks a share of one metric's items fails for good (`drop_20`:
20 %), or their losses grow (`loss_10`: by 0.10 nats). Seeds are fixed: the figures are the same everywhere.

Beside the chosen test its rivals, on the same draws: an alarm when the drop of a look exceeds the margin; a paired
z-test at every look at the level that all metrics share; one martingale since the baseline; the detectors alone; the
e-value of each look alone. `false_*` are alarms in 1,000 looks of a guard, after each of which it begins anew;
`found_*` shares of drops found within WITHIN looks, `looks_*` the median and the 95th percentile of the looks it took
(WITHIN + 1: not found).

`share_*`: looks at a share of the items, others each time, at least `stratified.LEAST` of them (`bare`: as few as the
share says), each followed by one at all where it raises doubt, at metrics of 60 items and of 20; `false`: alarms in
1,000 looks under harmless training, `found` and `looks` of a drop within SHARED_WITHIN looks.

`replays_*` are of WINDOWS windows of WINDOW examples with so many culprits at random places, each of which does all the
damage; `doses`: of `CULPRITS` each does a part, parts exponentially distributed; `left_doses` is the damage that the
innocent ones still do, as a share, at most. `among`: each of 3 culprits does a quarter, and the other examples together
the rest, some more and some less than nothing; what a replay measures varies by this share of the damage. After a
verdict `named`, `repaired` is the share of windows in which the examples that are learned again do at most SHARE of the
damage, and `left` the most that they do.
"""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from random import Random

from apollod.core.facts.quality.culprits import SHARE, Replay, Verdict, next_replay, search, told
from apollod.core.facts.quality.looking import LEAST, doubt
from apollod.core.facts.quality.sequential import BETS, LOOKS, Metric, alarms, baseline_of, drops, metric, renewed, seen
from benchmarks import report

METRICS, ITEMS, MARGIN = 8, 60, 0.05
LOSS_MARGIN, LOSS_SCALE = 0.05, 0.5
QUIET, WITHIN = 100, 30
GUARDS, LOOKS_EACH = 10, 1000
DROPS = 60  # drops of each size
SHARES_ASKED, SHARE_DROPS, SHARED_WITHIN = (0.05, 0.1, 0.3, 1.0), (0.1, 0.2, 0.5, 1.0), 60
SHARES, LOSSES = (0.1, 0.15, 0.2, 0.3, 0.5), (0.1, 0.15, 0.2)
FALSE_MAX = 1.0  # in 1,000 looks
WINDOW, WINDOWS, CULPRITS = 128, 500, 6
REPLAYS_MAX = 20
NOISES = (0.0, 0.03, 0.06, 0.1, 0.15)

Looks = Iterator[list[float]]
"""The drops of one metric, look by look."""


class Guard:
    """The chosen test and its rivals on the same looks; each alarms and begins anew independently."""

    def __init__(self, blank: Metric, metrics: int) -> None:
        self.chosen = dict.fromkeys(map(str, range(metrics)), blank)
        self.detectors = dict(self.chosen)
        self.cleared: dict[str, float] = {}
        self.asked_all = 0
        self.martingales = [[1.0] * len(BETS) for _ in range(metrics)]

    def look(self, found: Sequence[list[float]]) -> set[str]:
        """Process a look; returns the tests that alarm."""
        names, said = list(self.chosen), set()
        for name, one in zip(names, found, strict=True):
            after = seen(self.chosen[name], one)
            same = self.detectors[name] is self.chosen[name]
            self.chosen[name], self.detectors[name] = after, after if same else seen(self.detectors[name], one)
        if alarms(self.chosen):
            said.add("chosen")
            self.chosen = {name: renewed(one) for name, one in self.chosen.items()}
        if math.fsum(one.e_value for one in self.detectors.values()) >= LOOKS * len(names):
            said.add("detectors")
            self.detectors = {name: renewed(one) for name, one in self.detectors.items()}
        last = [seen(renewed(one), drops_) for one, drops_ in zip(self.chosen.values(), found, strict=True)]
        if math.fsum(one.alone for one in last) >= LOOKS * len(names):
            said.add("look_alone")
        if any(one.drop > one.margin for one in last):
            said.add("threshold")
        level = statistics.NormalDist().inv_cdf(1 - 1 / LOOKS / len(names))
        if any(_z(drops_, one.margin) > level for one, drops_ in zip(last, found, strict=True)):
            said.add("z_test")
        for own, alone in zip(self.martingales, last, strict=True):
            own[:] = [min(1e12, capital * factor) for capital, factor in zip(own, alone.detectors, strict=True)]
        if math.fsum(math.fsum(own) / len(own) for own in self.martingales) >= LOOKS * len(names):
            said.add("martingale")
            self.martingales = [[1.0] * len(BETS) for _ in names]
        return said


RIVALS = ("chosen", "threshold", "z_test", "martingale", "detectors", "look_alone")


def _z(found: Sequence[float], margin: float) -> float:
    spread = statistics.stdev(found) / math.sqrt(len(found)) if len(found) > 1 else math.inf
    return (statistics.fmean(found) - margin) / spread if spread else math.inf * (statistics.fmean(found) > margin)


def flaky(rng: Random, items: int = ITEMS) -> Looks:
    """Greedy answers, 1 in 100 of which comes out differently."""
    passed = [rng.random() < 0.8 for _ in range(items)]
    while True:
        yield [(1.0 if one else -1.0) * (rng.random() < 0.01) for one in passed]


def sampled(rng: Random, items: int = ITEMS) -> tuple[float, Looks]:
    """Items with their own pass rates, uniform in 0 to 1: the allowance of their baseline, and the looks."""
    rates = {str(n): rng.random() for n in range(items)}

    def answers() -> dict[str, float]:
        return {name: float(rng.random() < rate) for name, rate in rates.items()}

    before = baseline_of([answers() for _ in range(3)])
    return before.allowance, (drops(before, answers(), "lower", 1.0) for _ in iter(int, 1))


def loss(rng: Random, items: int = ITEMS, worse: float = 0.0) -> Looks:
    """Losses of texts, off by 0.01 nats at each look, and by 0.03 permanently after training; `worse`: mean increase in
    nats after QUIET looks."""
    moved = [rng.gauss(0.0, 0.03) for _ in range(items)]
    hurt = [rng.expovariate(1 / worse) if worse else 0.0 for _ in range(items)]
    for look in _count():
        own = hurt if look >= QUIET else [0.0] * items
        yield [shift + more + rng.gauss(0.0, 0.01) for shift, more in zip(moved, own, strict=True)]


def harmless(rng: Random, items: int = ITEMS) -> Looks:
    """The drops of `wandering`."""
    return wandering(rng, items)[1]


def wandering(rng: Random, items: int) -> tuple[list[bool], Looks]:
    """Training that moves items: which of them passed at the baseline, and the drops of each look. Each item has a
    strength that wanders around its own mean, and passes while it is above 0, about 80 % of them at any time; half of
    the way is forgotten in 35 looks, and in the long run 1 in 10 differs from the baseline."""
    spread = 0.4
    own = [rng.gauss(0.84, 1.0) for _ in range(items)]
    shift = [rng.gauss(0.0, spread) for _ in own]
    before = [one + more > 0 for one, more in zip(own, shift, strict=True)]
    return before, _wandered(rng, own, shift, before, spread)


def _wandered(rng: Random, own: list[float], shift: list[float], before: list[bool], spread: float) -> Looks:
    keep = 0.98
    while True:
        shift = [keep * more + math.sqrt(1 - keep * keep) * rng.gauss(0.0, spread) for more in shift]
        yield [float(was) - float(one + more > 0) for was, one, more in zip(before, own, shift, strict=True)]


Part = Callable[[int, list[float]], list[float]]
"""From the number of a look and its drops to the part of them that is measured at first."""


def part_of(share: float, least: int) -> Part:
    """A function that picks a share of the items, at least `least`, in turns."""

    def part(turn: int, one: list[float]) -> list[float]:
        count = min(len(one), max(least, math.ceil(share * len(one) - 1e-9)))
        return [one[(turn * count + place) % len(one)] for place in range(count)]

    return part


def share_figures(blank: Metric) -> dict[str, float]:
    """Figures of looks at a share of the items, each followed by a whole one if it raises doubt: what they find, and
    how often they alarm without a cause."""
    figures: dict[str, float] = {}
    for items, share, least in (
        (items, share, least) for items in (60, 20) for share in SHARES_ASKED for least in (1, LEAST)
        if share < 1.0 or least > 1
    ):  # fmt: skip
        name = f"share_{items}_{round(100 * share)}{'' if least > 1 else '_bare'}"
        part = part_of(share, least) if share < 1.0 else None
        calm, quiet = _named(partial(harmless, items=items), "calm"), partial(flaky, items=items)
        figures[f"{name}_false"] = false_alarms(calm, blank, GUARDS, LOOKS_EACH, part=part)["chosen"]
        for drop in SHARE_DROPS:
            down = partial(fallen, share=drop, items=items)
            took = looks_to_alarm(down, quiet, blank, DROPS, within=SHARED_WITHIN, part=part)["chosen"]
            figures[f"{name}_found_{round(100 * drop)}"] = statistics.fmean(one <= SHARED_WITHIN for one in took)
            figures[f"{name}_looks_{round(100 * drop)}"] = float(statistics.median(took))
    return figures


def _named(make: partial[Looks], name: str) -> partial[Looks]:
    """`make` with this name, which seeds the draws of `false_alarms`."""
    make.__name__ = name  # type: ignore[attr-defined]
    return make


def look_at(guard: Guard, number: int, found: Sequence[list[float]], part: Part | None) -> set[str]:
    """Look at a part of the items, if any is given, and at all of them if that raises doubt; returns the tests that
    alarm."""
    if part is None:
        return guard.look(found)
    said = guard.look([part(number, one) for one in found])
    if "chosen" in said:
        guard.cleared = {}
    elif doubt(guard.chosen, 0.0, guard.cleared).ask_all:
        said |= guard.look(found)
        guard.asked_all += 1
        guard.cleared = {name: one.e_value for name, one in guard.chosen.items()}
    return said


def at_margin(rng: Random, items: int = ITEMS) -> Looks:
    """The worst case that H0 allows: one item in 20 fails, drawn anew each time."""
    while True:
        yield [float(rng.random() < MARGIN) for _ in range(items)]


def fallen(rng: Random, share: float, items: int = ITEMS) -> Looks:
    """Flaky answers; after QUIET looks `share` of the items, if they passed, fails permanently."""
    before = flaky(rng, items)
    down = set(rng.sample(range(items), round(share * items)))
    for look, one in zip(_count(), before, strict=False):
        yield [1.0 if look >= QUIET and n in down else drop for n, drop in enumerate(one)]


def false_alarms(make: Callable[[Random], Looks | tuple[float, Looks]], blank: Metric, guards: int, looks: int,
                 metrics: int = METRICS, part: Part | None = None) -> dict[str, float]:  # fmt: skip
    """Alarms in 1,000 looks of a guard whose metrics all follow `make`."""
    count = dict.fromkeys(RIVALS, 0)
    for number in range(guards):
        guard, sources = Guard(blank, metrics), []
        for at, name in enumerate(guard.chosen):
            made = make(Random(f"{make.__name__} {number} {at}"))
            allowance, source = made if isinstance(made, tuple) else (0.0, made)
            guard.chosen[name] = guard.detectors[name] = metric(blank.margin + allowance, blank.scale)
            sources.append(source)
        for look in range(looks):
            for who in look_at(guard, look, [next(source) for source in sources], part):
                count[who] += 1
    return {who: 1000.0 * alarms_ / (guards * looks) for who, alarms_ in count.items()}


def looks_to_alarm(make: Callable[[Random], Looks], quiet: Callable[[Random], Looks], blank: Metric, drops_: int,
                   metrics: int = METRICS, within: int = WITHIN,
                   part: Part | None = None) -> dict[str, list[int]]:  # fmt: skip
    """Looks from a drop of one metric to the alarm; `within` + 1 without one."""
    took: dict[str, list[int]] = {who: [] for who in RIVALS}
    for number in range(drops_):
        guard = Guard(blank, metrics)
        sources = [make(Random(f"drop {number}")), *(quiet(Random(f"q {number} {at}")) for at in range(1, metrics))]
        found: dict[str, int] = {}
        for look in range(QUIET + within):
            for who in look_at(guard, look, [next(source) for source in sources], part):
                if look >= QUIET:
                    found.setdefault(who, look - QUIET + 1)
        for who in RIVALS:
            took[who].append(found.get(who, within + 1))
    return took


def found_figures(name: str, took: Mapping[str, Sequence[int]]) -> dict[str, float]:
    """The share found by each test, and the looks that it took."""
    figures = {f"found_{name}_{who}": statistics.fmean(one <= WITHIN for one in own) for who, own in took.items()}
    figures[f"looks_{name}_median"] = float(statistics.median(took["chosen"]))
    figures[f"looks_{name}_p95"] = float(report.percentile(took["chosen"], 0.95))
    return figures


def bisected(damage: Callable[[frozenset[int]], float], window: int = WINDOW) -> Verdict:
    """The verdict of a search; `damage`: of a replay that keeps these examples, as a share of the whole window's, which
    is ten margins. It falls with the rate."""
    state = search(window)
    while isinstance(said := next_replay(state), Replay):
        share = damage(frozenset(range(window)).difference(said.left_out))
        state = told(state, said.left_out, 10.0 * share * said.lr_scale, said.lr_scale)
    return said


def culprit_figures(windows: int) -> dict[str, float]:
    """Replays by number of culprits; precision and recall of the held examples with inexact replays."""
    figures: dict[str, float] = {}

    def note(name: str, verdicts: Sequence[tuple[Verdict, set[int]]]) -> None:
        named = [(verdict.culprits if verdict.kind == "named" else (), planted) for verdict, planted in verdicts]
        hits = sum(len(planted.intersection(culprits)) for culprits, planted in named)
        held, there = sum(len(culprits) for culprits, _ in named), sum(len(planted) for _, planted in named)
        figures[f"replays_{name}_mean"] = statistics.fmean(verdict.replays for verdict, _ in verdicts)
        figures[f"replays_{name}_most"] = float(max(verdict.replays for verdict, _ in verdicts))
        figures[f"precision_{name}"], figures[f"recall_{name}"] = hits / max(1, held), hits / there

    for number in range(1, CULPRITS + 1):
        plants = [set(Random(f"{number} {at}").sample(range(WINDOW), number)) for at in range(windows)]
        note(str(number), [(bisected(lambda kept, p=p: float(bool(kept & p))), p) for p in plants])  # type: ignore[misc]
    left, doses = 0.0, list[tuple[Verdict, set[int]]]()
    for at, planted in enumerate(plants):
        rng = Random(f"doses {at}")
        parts = {one: rng.expovariate(1.0) for one in sorted(planted)}
        whole = math.fsum(parts.values())
        doses.append((_by_parts(parts, whole), planted))
        left = max(left, sum(parts[one] for one in planted.difference(doses[-1][0].held)) / whole)
    note("doses", doses)
    for noise in NOISES:
        searches = [_among(Random(f"among {noise} {at}"), noise) for at in range(windows)]
        note(f"among_{noise}", [(verdict, planted) for verdict, planted, _ in searches])
        after = [damage for verdict, _, damage in searches if verdict.kind == "named"]
        figures[f"repaired_among_{noise}"] = sum(damage <= SHARE for damage in after) / max(1, len(after))
        figures[f"left_among_{noise}"] = max(after, default=0.0)
    return figures | {"left_doses": left}


def _by_parts(parts: Mapping[int, float], whole: float) -> Verdict:
    return bisected(lambda kept: math.fsum(part for one, part in parts.items() if one in kept) / whole)


def _among(rng: Random, noise: float) -> tuple[Verdict, set[int], float]:
    """The verdict about three culprits among examples that do a quarter of the damage, the culprits, and the damage
    that those learned again do."""
    planted = set(rng.sample(range(WINDOW), 3))
    parts = {one: rng.gauss(1.0, 3.0) for one in range(WINDOW) if one not in planted}
    scale = 0.25 / math.fsum(parts.values())

    def damage(kept: frozenset[int]) -> float:
        return len(kept & planted) / 4 + scale * math.fsum(parts[one] for one in sorted(kept - planted))

    found = bisected(lambda kept: damage(kept) + (rng.gauss(0.0, noise) if kept else 0.0))
    again = frozenset(range(WINDOW)).difference(found.held)
    return found, planted, found.lr_scale * damage(again)


def _count() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


def main() -> None:
    """Simulate and print."""
    args = report.parser(__doc__ or "").parse_args()
    passes, losses = metric(MARGIN), metric(LOSS_MARGIN, LOSS_SCALE)

    def harmless_200(rng: Random) -> Looks:
        return harmless(rng, 200)

    figures: dict[str, float] = {}
    goals = {}
    for make, blank in (
        (flaky, passes), (sampled, passes), (loss, losses), (harmless, passes), (harmless_200, passes),
        (at_margin, passes),
    ):  # fmt: skip
        rates = false_alarms(make, blank, GUARDS, LOOKS_EACH)
        figures |= {f"false_{make.__name__}_{who}": rate for who, rate in rates.items()}
        goals[f"false_{make.__name__}"] = report.goal(rates["chosen"], FALSE_MAX, at_most=True)
    for share in SHARES:
        took = looks_to_alarm(partial(fallen, share=share), flaky, passes, DROPS)
        figures |= found_figures(f"drop_{round(100 * share)}", took)
    for worse in LOSSES:
        took = looks_to_alarm(partial(loss, worse=worse), loss, losses, DROPS)
        figures |= found_figures(f"loss_{round(100 * worse)}", took)
    figures |= share_figures(passes)
    figures |= culprit_figures(WINDOWS)
    goals["replays_1_most"] = report.goal(figures["replays_1_most"], REPLAYS_MAX, at_most=True)
    report.report("quality_statistics", figures, {}, goals, threads=1, as_json=args.json)


if __name__ == "__main__":
    main()
