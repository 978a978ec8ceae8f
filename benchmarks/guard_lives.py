"""Simulates the guard at its defaults: its rate of false alarms, and its delay after lessons are forgotten: `python -m
benchmarks.guard_lives`.

A guard for a small model: 20 facts and 15 formats, 20 texts, KL, and known lessons. Looks ask a few of each, and all if
that raises doubt, by the daemon's code (`core/facts/quality/looking.py`). Without a cause: harmless training moves
answers as in `quality_statistics.harmless`, and at each look 1 known lesson in 50 has lost some of its wordings or all
of them; a lesson that fails is practised and returns five looks later. With a cause: after QUIET looks a share of the
lessons is forgotten for good.

Besides, looks at all probes of the shipped set (all levels; for a smaller model those up to the first one): the rate of
alarms under harmless training alone, and that of the first look after harm, in which a share of one group or of all
items fails. Groups of one size share a figure.

Seeds are fixed: the figures are the same everywhere.
"""

import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random

from apollod.core.facts.quality.looking import LEAST, LESSONS, LESSONS_MAX, RECENT, doubt, fallen_together, looked
from apollod.core.facts.quality.sequential import Baseline, alarms, renewed
from apollod.core.facts.quality.state import QualityState
from apollod.core.settings import QualitySettings
from apollod.curation.probes.probe_item import LARGE
from apollod.supervisor.quality.prober import LEVELS, shipped
from benchmarks import report
from benchmarks.quality_statistics import QUIET, loss, wandering

LIVES, LOOKS_EACH, HARMED = 40, 250, 100
COUNTS = (8, 40, 1000)
SHARES = (0.25, 0.5, 1.0)
FADES, AWAY = 0.02, 5
WITHIN = 30
FALSE_MAX = 1.0  # in 1,000 looks
FOUND_MIN = 0.99  # share of first looks that find the loss of a quarter of a large group, or of all answers
SETTINGS = QualitySettings()
SHIPPED = {
    level: dict(Counter(probe.group for probe in shipped(level) if probe.kind != "text")) for level in (1, LEVELS)
}
"""items of each group with a pass rate, of the shipped probes up to a level"""
HARM = (0.05, 0.15, 0.25, 0.5, 1.0)
"""shares of items that fail; the margin is 0.05"""
FIRST_LOOKS = 1000


class Life:
    """A guard, its items and its lessons."""

    def __init__(self, rng: Random, lessons: int) -> None:
        self.rng, self.own = rng, QualityState()
        facts, format_ = wandering(rng, 20), wandering(rng, 15)
        self.sources: dict[str, Iterator[list[float]]] = {
            "facts.passed": facts[1], "format.passed": format_[1], "text.loss": loss(rng, 20)
        }  # fmt: skip
        before = {"facts.passed": facts[0], "format.passed": format_[0], "text.loss": [3.0] * 20}
        self.own.baseline = {name: _baseline(items) for name, items in before.items()}
        self.passing = [1.0] * lessons
        self.back = [0] * lessons
        self.shown, self.asked = [0] * lessons, [0] * lessons
        self.looks = self.whole = 0

    def look(self) -> bool:
        """True if it raises an alarm; then the tests begin anew."""
        drops = {name: next(source) for name, source in self.sources.items()}
        self.looks += 1
        for n in range(len(self.passing)):
            if self.back[n] == self.looks:
                self.passing[n], self.shown[n] = 1.0, self.looks
            if self.rng.random() < FADES:
                self.passing[n] = min(self.passing[n], self.rng.choice((0.75, 0.75, 0.5, 0.0)))
        rang = self._asked(drops, whole=False)
        if not rang and doubt(self.own.metrics, 0.1, self.own.cleared).ask_all:
            self.whole += 1
            rang = self._asked(drops, whole=True)
            self.own.cleared = {name: one.e_value for name, one in self.own.metrics.items()}
        return rang

    def _asked(self, drops: dict[str, list[float]], whole: bool) -> bool:
        figures: dict[str, dict[str, float | None]] = {}
        for name, found in drops.items():
            count = len(found) if whole else LEAST
            places = [(self.looks * count + n) % len(found) for n in range(count)]
            sign = 1.0 if name == "text.loss" else -1.0
            before = self.own.baseline[name].figures
            figures[name] = {f"{n:02}": before[f"{n:02}"] + sign * found[n] for n in places}
        known = [n for n, back in enumerate(self.back) if back <= self.looks or back == self.looks + AWAY]
        order = sorted(known, key=lambda n: (self._is_old(n), self.asked[n], n))
        chosen = order[: LESSONS_MAX if whole else LEAST]
        figures[LESSONS] = {f"L{n + 1}": self.passing[n] for n in chosen if not self._is_old(n)}
        self.own.metrics = looked(self.own, SETTINGS, figures)
        for n in chosen:
            self.asked[n] = self.looks
            if self.passing[n] < 1.0:  # tested again, practised, and restored
                self.back[n] = self.looks + AWAY
            else:
                self.shown[n] = self.looks
        if not alarms(self.own.metrics, whole=whole):
            return False
        self.own.metrics = {name: renewed(one) for name, one in self.own.metrics.items()}
        self.own.cleared = {}
        return True

    def _is_old(self, lesson: int) -> bool:
        return (self.looks - self.shown[lesson]) * SETTINGS.every_steps > RECENT


def main() -> int:
    """Simulate and print; 0 if every goal is met."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--first", action="store_true", help="only looks at all probes of the set that ships")
    args = parser.parse_args()
    counts = () if args.first else COUNTS
    figures: dict[str, float] = {}
    for count in counts:
        lives = [Life(Random(f"calm {count} {n}"), count) for n in range(LIVES)]
        rung = sum(life.look() for life in lives for _ in range(LOOKS_EACH))
        figures[f"false_{count}"] = 1000.0 * rung / (LIVES * LOOKS_EACH)
        figures[f"whole_{count}"] = 1000.0 * sum(life.whole for life in lives) / (LIVES * LOOKS_EACH)
        for share in SHARES:
            took = [_until_alarm(Random(f"harm {count} {share} {n}"), count, share) for n in range(HARMED)]
            name = f"{count}_{round(100 * share)}"
            figures[f"found_{name}"] = statistics.fmean(one <= WITHIN for one in took)
            figures[f"looks_{name}"] = float(statistics.median(took))
    for level, groups in SHIPPED.items():
        print(f"level {level}", file=sys.stderr, flush=True)
        figures[f"false_whole_{level}"] = 1000.0 * _calm_whole_looks(groups) / (LIVES * LOOKS_EACH)
        for share in HARM:
            sizes = {str(size): group for group, size in groups.items() if size > LARGE or level == 1}
            for name, group in (sizes | {"all": "all"}).items():
                figures[f"first_{level}_{name}_{round(100 * share)}"] = _first_look(groups, group, share)
    calm = (f"false_whole_{level}" for level in SHIPPED)
    goals = {name: report.goal(figures[name], FALSE_MAX, at_most=True) for name in calm}
    sizes = {str(size) for size in SHIPPED[LEVELS].values() if size > LARGE}
    found = [f"first_{LEVELS}_{name}_25" for name in sorted(sizes | {"all"})]
    goals |= {name: report.goal(figures[name], FOUND_MIN, at_most=False) for name in found}
    goals |= {f"false_{count}": report.goal(figures[f"false_{count}"], FALSE_MAX, at_most=True) for count in counts}
    report.report("guard_lives", figures, {}, goals, threads=1, as_json=args.json)
    return 0 if all(goal["met"] for goal in goals.values()) else 1


def _baseline(items: Sequence[float]) -> Baseline:
    return Baseline({f"{n:02}": float(one) for n, one in enumerate(items)}, 0.0)


def _guard(passed: Mapping[str, Sequence[float]]) -> QualityState:
    """A guard of groups, by the figure of each item at the baseline."""
    own = QualityState()
    own.baseline = {f"{group}.passed": _baseline(items) for group, items in passed.items()}
    return own


def _blank(groups: dict[str, int]) -> QualityState:
    """A guard of these groups in which every item passed at the baseline."""
    return _guard({group: [1.0] * size for group, size in groups.items()})


def _rings(own: QualityState, failing: dict[str, list[float]]) -> bool:
    """Take a look at all probes; true for an alarm. `failing`: the drop of each item of each group."""
    figures = {
        f"{group}.passed": {
            f"{n:02}": own.baseline[f"{group}.passed"].figures[f"{n:02}"] - one for n, one in enumerate(drops)
        }
        for group, drops in failing.items()
    }
    own.metrics = looked(own, SETTINGS, figures)
    return bool(alarms(own.metrics, whole=True) or fallen_together(own, SETTINGS, own.metrics, figures))


def _calm_whole_looks(groups: dict[str, int]) -> int:
    rung = 0
    for number in range(LIVES):
        rng = Random(f"whole {number}")
        moved = {group: wandering(rng, size) for group, size in groups.items()}
        own = _guard({group: before for group, (before, _) in moved.items()})
        for _ in range(LOOKS_EACH):
            if _rings(own, {group: next(looks) for group, (_, looks) in moved.items()}):
                rung, own.metrics = rung + 1, {}
    return rung


def _first_look(groups: dict[str, int], group: str, share: float) -> float:
    """Rate of alarms at the first look if each item of a group ("all": of every group) fails with this probability."""
    rung = 0
    for number in range(FIRST_LOOKS):
        rng = Random(f"first {group} {share} {number}")
        rung += _rings(
            _blank(groups),
            {
                each: [float(group in (each, "all") and rng.random() < share) for _ in range(size)]
                for each, size in groups.items()
            },
        )
    return rung / FIRST_LOOKS


def _until_alarm(rng: Random, count: int, share: float) -> int:
    """Looks until an alarm after a share of the lessons was forgotten; WITHIN + 1: none."""
    life = Life(rng, count)
    for _ in range(QUIET):
        life.look()
    for n in rng.sample(range(count), round(share * count)):
        life.passing[n] = 0.0
    look: Callable[[], bool] = life.look
    return next((number for number in range(1, WITHIN + 1) if look()), WITHIN + 1)


if __name__ == "__main__":
    raise SystemExit(main())
