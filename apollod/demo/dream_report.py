"""Tells a person of the dream demo: the story while dreams run (a line that is updated, and lines that stay), then the
goals and the report on them. Pure."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from apollod.core.surroundings import SURROUNDING_KINDS, SurroundingKind
from apollod.demo.world.exam import Rate, way_in
from apollod.demo.world.instructions import KINDS, Instruction, Kind
from apollod.demo.world.measuring import Measured

SHOWN = 10
"""most tests of a mode that are shown, the newest last"""

Body = dict[str, Any]

BARE_BEFORE_MAX = 0.05
BARE_AFTER_MIN = 0.9
CONTRAST_MIN = 0.9
"""share of right answers under the opposite, and under the cancelled instruction"""
FACTS_LOST_MAX = 0.05
TOLD_LOST_MAX = 0.1
"""share of answers under an instruction of any kind"""

COLUMNS = ("pattern", "surroundings", "told before", "bare before", "bare after", "opposite", "cancelled", "told after")


class Story:
    """Call `hear` with every event of dreams and patterns, in order. `line`: the present activity.

    `practices`: learned dreams by pattern; `phases`: settled, retired or active, by pattern.
    """

    def __init__(self) -> None:
        self.line = ""
        self.dreams = 0
        self.practices: dict[str, int] = {}
        self.phases: dict[str, str] = {}
        self._stopped = False
        self._pattern_of: dict[str, str] = {}
        self._tests: dict[tuple[str, str], str] = defaultdict(str)
        self._round: dict[str, list[int]] = {}
        self._round_name = ""

    @property
    def over(self) -> bool:
        """True if no pattern is active any more, or dreaming was stopped."""
        return self._stopped or (bool(self.phases) and "active" not in self.phases.values())

    def hear(self, kind: str, body: Body) -> str:
        """The line to keep for an event; empty for most."""
        match kind:
            case "pattern.added":
                name = body["pattern"]["name"]
                self.phases[name], self.practices[name] = "active", 0
            case "pattern.settled":
                self.phases[body["pattern"]] = "settled"
                return f"{body['pattern']} is settled after {body['practices']} practices: {_tests(body['tests'])}"
            case "pattern.unsettled":
                self.phases[body["pattern"]] = "active"
                return f"{body['pattern']} is not settled any more: {body['reason']}"
            case "pattern.retired":
                self.phases[body["pattern"]] = "retired"
                return f"{body['pattern']} is given up: {body['reason']}"
            case "dream.requested":
                self.dreams += 1
                self._pattern_of[body["dream"]] = body["pattern"]
                if body["purpose"] == "held-out":
                    self.line = f"{body['pattern']}: scenarios are imagined that are never practised"
                if body["purpose"] == "contrast":
                    self.line = f"{body['pattern']}: answers where it would be wrong, which are held"
            case "dream.imagined":
                self._said(body["dream"], body["scenario"][-1]["content"])
            case "dream.trained":
                self.practices[self._pattern_of[body["dream"]]] += 1
            case "dream.tested":
                self._tested(body)
            case "dreaming.stopped":
                self._stopped = True
                return f"no more dreams: {body['reason']}"
            case "dream.failed" | "dream.abandoned":
                return f"{body['dream']}: {body['reason']}"
        return ""

    def _said(self, dream: str, request: str) -> None:
        pattern = self._pattern_of[dream]
        if not self.line.startswith(f"{pattern}: scenarios are imagined"):
            self.line = self._window(pattern, f'"{request}"')

    def _tested(self, body: Body) -> None:
        pattern, mode = body["pattern"], body["mode"]
        if not body["round"]:
            seen = self._tests[pattern, mode] + ("+" if body["passed"] else "-")
            self._tests[pattern, mode] = seen[-SHOWN:]
            self.line = self._window(pattern)
            return
        if self._round_name != (name := f"{pattern}: {body['round']}"):
            self._round_name, self._round = name, {}
        counts = self._round.setdefault(mode, [0, 0])
        counts[0] += body["passed"]
        counts[1] += 1
        self.line = f"{name}, on what was held out: {_tests(self._round)}"

    def _window(self, pattern: str, what: str = "") -> str:
        """The progress of a pattern, and the present dream."""
        windows = (f"{mode} {seen}" for mode in ("bare", "contrast") if (seen := self._tests[pattern, mode]))
        done = ", ".join([f"{pattern}: {self.practices[pattern]} practices", *windows])
        return f"{done} {what}".rstrip()


def _tests(tests: dict[str, Any]) -> str:
    return ", ".join(f"{passed} of {count} {mode}" for mode, (passed, count) in sorted(tests.items()))


# --- the report -------------------------------------------------------------------------------------------------------


class Seen(NamedTuple):
    """Measurements of the served model before and after."""

    before: Measured
    after: Measured

    def moved(self, kind: Kind) -> bool:
        """True if, in each kind of surroundings, a pattern now shows without its instruction, did not before, and stays
        away under the opposite."""
        return all(self._moved(around, kind) for around in self.around(kind))

    def around(self, kind: Kind) -> list[SurroundingKind]:
        """The kinds of surroundings in which a pattern was measured."""
        return [around for around in SURROUNDING_KINDS if (way_in("untold", around), kind) in self.after.rates]

    def _moved(self, around: SurroundingKind, kind: Kind) -> bool:
        before, after = self.before.rates, self.after.rates
        contrast = [_share(after[way_in(way, around), kind]) for way in ("opposite", "cancelled")]
        return (
            _share(before[way_in("untold", around), kind]) <= BARE_BEFORE_MAX
            and _share(after[way_in("untold", around), kind]) >= BARE_AFTER_MIN
            and min(contrast) >= CONTRAST_MIN
        )

    def lost(self, way: str, kind: str) -> float:
        """Share of a group's answers that were right before, minus the share now; below 0: a gain."""
        return round(_share(self.before.rates[way, kind]) - _share(self.after.rates[way, kind]), 9)  # 1 - 57/60 > 0.05


def goals(patterns: Sequence[Instruction], seen: Seen, replayed: bool) -> dict[str, dict[str, Any]]:
    """Each goal with its figure, its target, and whether it is met. `replayed`: the journal gives the same bits."""
    moved = sum(seen.moved(one.kind) for one in patterns)
    facts, told = seen.lost("facts", ""), max(seen.lost("told", kind) for kind in KINDS)
    return {
        "patterns_moved": {"value": moved, "goal": len(patterns), "met": moved == len(patterns)},
        "facts_lost": {"value": round(facts, 4), "goal": FACTS_LOST_MAX, "met": facts <= FACTS_LOST_MAX},
        "told_lost": {"value": round(told, 4), "goal": TOLD_LOST_MAX, "met": told <= TOLD_LOST_MAX},
        "replayed": {"value": replayed, "goal": True, "met": replayed},
    }


def figures(patterns: Sequence[Instruction], seen: Seen) -> dict[str, Any]:
    """All rates with their intervals, for JSON; `others`: kinds that were not practised."""
    own = {one.kind for one in patterns}
    return {
        "patterns": {
            one.kind: {
                "instruction": one.texts[0],
                "before": _by_way(seen.before, one.kind, "none"),
                "after": _by_way(seen.after, one.kind, "none"),
                "around": {
                    kind: {"before": _by_way(seen.before, one.kind, kind), "after": _by_way(seen.after, one.kind, kind)}
                    for kind in seen.around(one.kind)[1:]
                },
                "moved": seen.moved(one.kind),
            }
            for one in patterns
        },
        "others": {kind: _both(seen, "told", kind) for kind in KINDS if kind not in own},
        "facts": _both(seen, "facts", ""),
        "talk": _both(seen, "talk", ""),
        "probe_loss": {"before": round(seen.before.loss, 4), "after": round(seen.after.loss, 4)},
    }


def rows(patterns: Sequence[Instruction], seen: Seen) -> list[tuple[str, ...]]:
    """Rows of a table with `COLUMNS`."""
    before, after = seen.before.rates, seen.after.rates
    return [
        (
            one.kind, around, *(_text(before[way_in(way, around), one.kind]) for way in ("told", "untold")),
            *(_text(after[way_in(way, around), one.kind]) for way in ("untold", "opposite", "cancelled", "told")),
        )
        for one in patterns
        for around in seen.around(one.kind)
    ]  # fmt: skip


def kept(patterns: Sequence[Instruction], seen: Seen) -> list[tuple[str, str, str]]:
    """Groups that must not get worse, before and after; the loss also rises with every other behaviour shown: an answer
    in capitals is as right as one in small letters, and a different text."""
    own = {one.kind for one in patterns}
    groups = [("told", kind) for kind in KINDS if kind not in own] + [("facts", ""), ("talk", "")]
    found = [
        (f"{way} {kind}".strip(), _text(seen.before.rates[way, kind]), _text(seen.after.rates[way, kind]))
        for way, kind in groups
    ]
    losses = (f"{seen.before.loss:.3f}", f"{seen.after.loss:.3f}")
    return [*found, ("loss of answers that show only what was told", *losses)]


def _by_way(measured: Measured, kind: Kind, around: SurroundingKind) -> dict[str, Any]:
    rates = {way: measured.rates[way_in(way, around), kind] for way in ("told", "untold", "opposite", "cancelled")}
    return {"bare" if way == "untold" else way: rate.figures() for way, rate in rates.items()}


def _share(rate: Rate) -> float:
    return rate.passed / rate.cases


def _both(seen: Seen, way: str, kind: str) -> dict[str, Any]:
    return {"before": seen.before.rates[way, kind].figures(), "after": seen.after.rates[way, kind].figures()}


def _text(rate: Rate) -> str:
    low, high = rate.interval
    return f"{rate.passed}/{rate.cases} ({low:.2f}-{high:.2f})"
