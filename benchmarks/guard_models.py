"""Simulates the guard's detection for a small, a middle and a large model at the shipped settings: `python -m
benchmarks.guard_models`.

A small model passes the probes of level 1, a middle one also those of level 2, a large one all levels. Each life draws
the items that harm makes fail, and they fail at every look from then on; all passed at the baseline. Harm is in all
groups (`all`: each item fails with this probability), in one (`SIZE`: a group of so many items), or in the pooled rate
(`pooled`: exactly this share of all items, wherever they are). A look asks all probes (`whole`), or the fewest that the
daemon asks, 3 of each group or a twentieth, and all of them if that raises doubt (`least`).

- `first_*`: share of lives in which the first look is an alarm; `third_*`: one of the first three.
- `flipped_N`: all refusals fail, N of which passed at the baseline; found in one look.
- `false_*`: alarms in 1,000 looks at all probes, LOOKS_EACH a life. `margin`: at each look each item fails with the
probability of the margin; `harmless`: training that moves answers (`quality_statistics.harmless`).
- `stays_*`: share of lives with an alarm in STAYS looks at all probes if each item fails with the probability of the
margin at the first look, and keeps that result at all others.
- `restored_*`: share of weights found good by a look that a second look at all probes finds good again, as after
an alarm; else the guard goes further back. `repaired_*`: share of repairs after which the first look is not an alarm:
SHARE of a harm of five margins remains. 1 answer in 10 differs from the baseline for good, 1 in 100 varies
between looks.
- `needs_*`: items needed in one group (beside those of level 1), and in all groups together (of 10 each), to meet a
goal; 0: more than 400.

The result for a group depends only on how many of its items fell and rose, so it is cached by these: the test is
`sequential.seen` and `sequential.alarms`, and tests/unit/test_benchmark_guard_models.py compares it with
`looking.looked` and `looking.fallen_together`. Seeds are fixed: the figures are the same everywhere.
"""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from random import Random

from apollod.core.facts.quality.culprits import SHARE
from apollod.core.facts.quality.looking import LEAST, SHARE_MIN, TOGETHER, begun, doubt, speaking
from apollod.core.facts.quality.sequential import Baseline, Metric, alarms, metric, seen
from benchmarks import report
from benchmarks.guard_lives import SETTINGS, SHIPPED
from benchmarks.quality_statistics import harmless

LIVES, LOOKS_EACH, WITHIN, STAYS = 2000, 5, 3, 20
NEEDS_LIVES = 1000
LEVELS = {"small": 1, "middle": 2, "large": 3}
SMALL = SHIPPED[1]
HARM = {"first": 5, "third": 3}
"""harm in margins, by the figure of the goal"""
FOUND = {"first": 0.99, "third": 0.95}
FLAKY = 0.01
FAILING = 0.22
"""share of items that fail at the baseline in harmless training (`_moved`)"""
STEP = 10
"""step of the group's size in the search for `needs_*`"""

Drops = Mapping[str, Sequence[float]]
"""Drop of each item, by group."""


def groups_of(model: str) -> dict[str, int]:
    """Items of each group with a pass rate, of those that a model passes."""
    every = SHIPPED[max(SHIPPED)]
    return {name: size for name, size in every.items() if name in SMALL or int(name[-1]) <= LEVELS[model]}


class Guard:
    """A guard of groups. `drops` of a look, by item: 1 it fell, -1 it rose, else 0."""

    def __init__(self, groups: Mapping[str, int], failing: float = 0.0) -> None:
        """`failing`: share of each group's items that failed at the baseline."""
        self.blank = {name: _begun(size, failing) for name, size in groups.items()}
        self.metrics, self.looks, self.cleared = dict(self.blank), 0, dict[str, float]()

    def whole(self, drops: Drops) -> bool:
        """True if a look at all probes is an alarm."""
        self.metrics = {name: _seen(self.metrics[name], _tally(items)) for name, items in drops.items()}
        tallies = [_tally(items) for items in drops.values()]
        together = _seen(metric(SETTINGS.margin), tuple(map(sum, zip(*tallies, strict=True))))
        return bool(alarms(self.metrics, whole=True)) or together.alone >= TOGETHER

    def least(self, drops: Drops) -> bool:
        """True if a look at the fewest probes is an alarm, or the look at all of them that its doubt requires."""
        for name, items in drops.items():
            count = min(len(items), max(LEAST, math.ceil(SHARE_MIN * len(items))))
            asked = [items[(self.looks * count + n) % len(items)] for n in range(count)]
            self.metrics[name] = _seen(self.metrics[name], _tally(asked))
        self.looks += 1
        if alarms(self.metrics):
            return True
        if not doubt(self.metrics, SHARE_MIN, self.cleared).ask_all:
            return False
        rang = self.whole(drops)
        self.cleared = {name: one.e_value for name, one in self.metrics.items()}
        return rang

    def renewed(self) -> None:
        """Begin the tests anew, as after an alarm."""
        self.metrics = dict(self.blank)


@cache
def _begun(size: int, failing: float) -> Metric:
    fail = round(failing * size)
    return begun("group.passed", SETTINGS, Baseline({str(n): float(n >= fail) for n in range(size)}, 0.0))


def _tally(drops: Sequence[float]) -> tuple[int, ...]:
    return drops.count(1.0), drops.count(-1.0), len(drops)


@cache
def _seen(before: Metric, tally: tuple[int, ...]) -> Metric:
    fell, rose, items = tally
    return seen(before, [1.0] * fell + [-1.0] * rose + [0.0] * (items - fell - rose))


def drawn(rng: Random, groups: Mapping[str, int], where: str, share: float) -> dict[str, list[float]]:
    """The drops caused by harm."""
    if where == "pooled":
        every = [(name, n) for name, size in groups.items() for n in range(size)]
        hit = set(rng.sample(every, round(share * len(every))))
        return {name: [float((name, n) in hit) for n in range(size)] for name, size in groups.items()}
    return {
        name: [float(rng.random() < share) for _ in range(size)] if where in (name, "all") else [0.0] * size
        for name, size in groups.items()
    }


def found(groups: Mapping[str, int], where: str, share: float, looks: int, mode: str, lives: int = LIVES) -> float:
    """Share of lives in which harm is found within so many looks."""
    told = 0
    for number in range(lives):
        guard, drops = Guard(groups), drawn(Random(f"{where} {share} {number}"), groups, where, share)
        look = guard.whole if mode == "whole" else guard.least
        told += any(look(drops) for _ in range(looks))
    return told / lives


def flipped(passed: int, mode: str) -> float:
    """Share of lives in which one look finds that all refusals fail, of which so many passed."""
    told = 0
    for number in range(LIVES):
        drops = {name: [0.0] * size for name, size in SMALL.items()}
        for n in Random(f"flipped {passed} {number}").sample(range(SMALL["refusal"]), passed):
            drops["refusal"][n] = 1.0
        guard = Guard(SMALL)
        guard.metrics["refusal"] = _begun(SMALL["refusal"], 1.0 - passed / SMALL["refusal"])
        told += guard.whole(drops) if mode == "whole" else guard.least(drops)
    return told / LIVES


def false_alarms(groups: Mapping[str, int], kind: str) -> float:
    """Alarms in 1,000 looks; the tests begin anew after each."""
    rung = 0
    for number in range(LIVES):
        guard, rng = Guard(groups, FAILING if kind == "harmless" else 0.0), Random(f"{kind} {number}")
        sources = {name: harmless(rng, size) for name, size in groups.items()}
        for _ in range(LOOKS_EACH):
            if kind == "margin":
                drops: Drops = drawn(rng, groups, "all", SETTINGS.margin)
            else:
                drops = {name: next(source) for name, source in sources.items()}
            if guard.whole(drops):
                rung += 1
                guard.renewed()
    return 1000.0 * rung / (LIVES * LOOKS_EACH)


def repaired(groups: Mapping[str, int]) -> tuple[float, float]:
    """Share of restored weights found good, and share of repairs whose next look is not an alarm."""
    good = passes = 0
    for number in range(LIVES):
        rng, guard = Random(f"repaired {number}"), Guard(groups, FAILING)
        moved = {name: _moved(rng, size) for name, size in groups.items()}
        while guard.whole(moved) or speaking(guard.metrics):  # the guard never returns to such weights
            guard.renewed()
            moved = {name: _moved(rng, size) for name, size in groups.items()}
        guard.renewed()
        good += not guard.whole(_again(rng, moved, 0.0)) and not speaking(guard.metrics)
        guard.renewed()
        passes += not guard.whole(_again(rng, moved, SHARE * HARM["first"] * SETTINGS.margin))
    return good / LIVES, passes / LIVES


def _moved(rng: Random, size: int) -> list[float]:
    """Drops after long harmless training, as in `quality_statistics.harmless`."""
    strengths = [rng.gauss(0.84, 1.0) for _ in range(size)]
    return [float(one + rng.gauss(0.0, 0.4) > 0) - float(one + rng.gauss(0.0, 0.4) > 0) for one in strengths]


def _again(rng: Random, drops: Drops, harm: float) -> dict[str, list[float]]:
    """The drops of the same items at another look, with this share harmed."""
    return {name: [_once_more(rng, one, harm) for one in items] for name, items in drops.items()}


def _once_more(rng: Random, drop: float, harm: float) -> float:
    if rng.random() < FLAKY:
        return 1.0 if drop == 0.0 else 0.0
    return 1.0 if rng.random() < harm else drop


def needs(figure: str, grown: Callable[[int], tuple[dict[str, int], str]]) -> float:
    """The fewest items, in steps of STEP, that meet a goal; 0: not with 400."""
    looks, share = (1 if figure == "first" else WITHIN), HARM[figure] * SETTINGS.margin
    for size in range(4 * STEP, 401, STEP):
        groups, where = grown(size)
        if found(groups, where, share, looks, "whole", NEEDS_LIVES) >= FOUND[figure]:
            return float(size)
    return 0.0


def main() -> int:
    """Simulate and print; 0 if every goal is met."""
    args = report.parser(__doc__ or "").parse_args()
    figures: dict[str, float] = {}

    def tell(name: str, value: float) -> None:
        figures[name] = value
        print(f"{name} {value:.4f}", file=sys.stderr, flush=True)

    for mode in ("whole", "least"):
        for passed in (SMALL["refusal"] * share // 10 for share in (10, 9, 8, 7, 6)):
            tell(f"flipped_{passed}_{mode}", flipped(passed, mode))
    for model in LEVELS:
        groups = groups_of(model)
        sizes = {str(size): name for name, size in groups.items() if model == "small" or name == "parts-2"}
        places = {"all": "all", "pooled": "pooled"} | sizes
        for figure, times in HARM.items():
            for mode in ("whole", "least") if figure == "third" else ("whole",):
                for label, where in places.items():
                    looks = 1 if figure == "first" else WITHIN
                    name = f"{figure}_{model}_{label}_{mode}"
                    tell(name, found(groups, where, times * SETTINGS.margin, looks, mode))
        good, passes = repaired(groups)
        tell(f"restored_{model}", good)
        tell(f"repaired_{model}", passes)
        for kind in ("margin", "harmless"):
            tell(f"false_{kind}_{model}", false_alarms(groups, kind))
        tell(f"stays_{model}", found(groups, "all", SETTINGS.margin, STAYS, "whole"))
    for figure in HARM:
        tell(f"needs_{figure}_group", needs(figure, lambda size: (SMALL | {"new": size}, "new")))
        tell(f"needs_{figure}_all", needs(figure, lambda size: ({f"g{n}": 10 for n in range(size // 10)}, "all")))
    return told(figures, args.json)


def told(figures: dict[str, float], as_json: bool) -> int:
    """Print; returns 0 if every goal is met."""
    goals = {name: report.goal(value, *_bound(name)) for name, value in figures.items() if _is_goal(name)}
    report.report("guard_models", figures, {}, goals, threads=1, as_json=as_json)
    return 0 if all(goal["met"] for goal in goals.values()) else 1


def _is_goal(name: str) -> bool:
    return name.startswith(("first_", "third_", "restored_", "repaired_", "false_", f"flipped_{SMALL['refusal']}_"))


def _bound(name: str) -> tuple[float, bool]:
    kind = name.split("_")[0]
    return {"restored": (0.99, False), "repaired": (0.99, False), "false": (1.0, True), "flipped": (1.0, False)}.get(
        kind, (FOUND.get(kind, 0.0), False)
    )


if __name__ == "__main__":
    raise SystemExit(main())
