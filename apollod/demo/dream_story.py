"""Narrates dreams while they run: a line that is updated, and lines that stay. Pure."""

from collections import defaultdict
from typing import Any

SHOWN = 10
"""most tests of a mode that are shown, the newest last"""

Body = dict[str, Any]


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
