"""Reads the model's quality from the journal: metrics against their baseline, measurements, incidents.

Its events are folded by the daemon's own rules (`core.quality.fold`), without the rest of the state.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from apollod.adapters.journal.journal_reader import stream
from apollod.adapters.system.clock import iso
from apollod.cli.control.quality import held_facts, learned_facts, series_facts
from apollod.cli.control.questions import rows
from apollod.core import events as ev
from apollod.core.quality.baseline import Baseline, drops
from apollod.core.quality.fold import FOLDS
from apollod.core.quality.looking import compared_with, may_alarm, standing, worse
from apollod.core.quality.sequential import interval
from apollod.core.quality.state import QualityState
from apollod.core.settings import QualitySettings
from apollod.core.state import State
from apollod.wire.event_codec import decode_event

SECONDS = 60.0
_QUALITY = (
    "quality.wished", "quality.requested", "quality.measured", "quality.failed", "quality.alarmed", "quality.settled",
)  # fmt: skip
_BESIDE = ("daemon.started", "rollback.started", "rollback.refused", "rollback.completed")
_KINDS = ", ".join(f"'{kind}'" for kind in (*_QUALITY, *_BESIDE))
Object = dict[str, Any]


class Known:
    """The records read so far: the guard's state, measurements, incidents, and the newest figures."""

    def __init__(self) -> None:
        self.own = QualityState()
        self.settings = QualitySettings()
        self.looks: list[Object] = []
        self.incidents: list[Object] = []
        self._last: ev.QualityMeasured | None = None
        self._state = State()

    def take(self, seq: int, at_ns: int, event: ev.Event) -> None:
        """The next event, in the order of the journal."""
        if (fold := FOLDS.get(type(event))) is not None:
            fold(self.own, self._state, event, at_ns)
        match event:
            case ev.DaemonStarted():
                self.settings = event.settings.quality
            case ev.QualityMeasured():
                self._last = event
                look = _look(seq, at_ns, event.number, event.why, event.step, event.seconds)
                self.looks.append(look | {"left_out": event.left_out})
            case ev.QualityFailed():
                look = _look(seq, at_ns, event.number, None, None, 0.0)
                self.looks.append(look | {"outcome": "failed", "reason": event.reason})
            case ev.QualityAlarmed():
                self._alarmed(seq, at_ns, event)
            case _:
                self._then(seq, at_ns, event)

    def _alarmed(self, seq: int, at_ns: int, event: ev.QualityAlarmed) -> None:
        told = {name: {"drop": one.drop, "low": one.low, "high": one.high} for name, one in event.drops.items()}
        if self.looks:
            self.looks[-1] |= {"outcome": "alarm", "incident": event.incident}
        self.incidents.append(
            {
                "incident": event.incident, "at": iso(at_ns), "seq": seq, "step": event.step, "to": event.to,
                "metrics": list(event.metrics), "drops": told, "state": "open", "undone": [], "examples": [],
                "refused": None, "rolled_back": None, "settled": None,
            }
        )  # fmt: skip

    def _then(self, seq: int, at_ns: int, event: ev.Event) -> None:
        """What was done about the incident that is open."""
        if not self.incidents or self.incidents[-1]["state"] != "open":
            return
        incident = self.incidents[-1]
        match event:
            case ev.RollbackStarted():
                incident["undone"] += event.undone
                incident["examples"] += event.examples
            case ev.RollbackCompleted():
                incident["rolled_back"] = {
                    "at": iso(at_ns), "seq": seq, "to": event.to, "how": event.how, "seconds": event.seconds,
                }  # fmt: skip
            case ev.RollbackRefused():
                incident["refused"] = event.reason
            case ev.QualitySettled():
                incident["state"] = "settled"
                incident["settled"] = {"at": iso(at_ns), "seq": seq, "by": event.by, "how": event.how}

    def metrics(self) -> list[Object]:
        """Each metric of the baseline, by name. `now`, `drop` and its interval are null before a look, `margin` where
        it raises no alarm."""
        last = self._last
        figures: Mapping[str, Mapping[str, float | None]] = (
            last.figures if last is not None and last.why != "baseline" else {}
        )
        before = compared_with(self.own, figures)
        return [self._metric(name, one, figures.get(name)) for name, one in sorted(before.items())]

    def _metric(self, name: str, before: Baseline, figures: Mapping[str, float | None] | None) -> Object:
        test = standing(self.own, name, self.settings, before)
        row: Object = {
            "metric": name, "worse": worse(name), "baseline": _mean(before.figures), "now": None, "drop": None,
            "low": None, "high": None, "margin": test.margin if may_alarm(name, before, self.settings) else None,
            "looks": test.looks, "items": len(before.figures),
            "e_value": test.e_value,
        }  # fmt: skip
        if figures is None:
            return row
        found = drops(before, figures, worse(name), test.scale)
        low, high = interval(found, test.scale)
        measured = {item: value for item, value in figures.items() if value is not None and item in before.figures}
        dropped = sum(found) / len(found) if found else None
        return row | {"now": _mean(measured), "drop": dropped, "low": low, "high": high}


def _look(seq: int, at_ns: int, number: int, why: str | None, step: int | None, seconds: float) -> Object:
    return {
        "number": number, "at": iso(at_ns), "seq": seq, "why": why, "step": step, "seconds": seconds,
        "outcome": "baseline" if why == "baseline" else "passed", "incident": None, "reason": None,
        "left_out": {},
    }  # fmt: skip


def _mean(figures: Mapping[str, float]) -> float | None:
    return sum(figures.values()) / len(figures) if figures else None


def known(path: str) -> Known:
    """All of a journal."""
    found = Known()
    for seq, at_ns, event in _events(path):
        found.take(seq, at_ns, event)
    return found


def _events(path: str) -> Iterator[tuple[int, int, ev.Event]]:
    sql = f"SELECT seq, at_ns, kind, version, body FROM events WHERE kind IN ({_KINDS}) ORDER BY seq"
    for seq, at_ns, kind, version, body in stream(path, sql, SECONDS):
        yield seq, at_ns, decode_event(kind, version, body)


def answers(path: str, after: int) -> list[Object]:
    """What was measured, or failed, or alarmed after an event: kind, seq and body, oldest first."""
    found = rows.tuples(
        path,
        "SELECT kind, seq, body FROM events WHERE kind IN ('quality.measured', 'quality.failed', 'quality.alarmed') "
        f"AND seq > {int(after)} ORDER BY seq",
    )
    return [{"kind": kind, "seq": seq, "body": json.loads(body)} for kind, seq, body in found]


def report(path: str) -> Object:
    """As `quality report --json` has it."""
    found = known(path)
    own = found.own
    return {
        "schema_version": 1, "enabled": found.settings.every_steps > 0, "every_steps": found.settings.every_steps,
        "resume": found.settings.resume, "baseline_step": own.at if own.baseline else None, "probes": own.probes,
        "silent": {group: list(passed) for group, passed in own.silent.items()}, "holding": held_facts.held(path),
        "metrics": found.metrics(), "looks": found.looks, "incidents": found.incidents, "patterns": _patterns(path),
        "series": series_facts.series(path, found.metrics(), own.baseline), **learned_facts.facts(path),
    }  # fmt: skip


def _patterns(path: str) -> list[Object]:
    """What was learned of each: tests before the first practice, and of the last round."""
    if not rows.has(path, "patterns"):
        return []
    names = "name, state, held_out, baseline_bare, last_bare, baseline_contrast, last_contrast, last_round"
    return rows.objects(path, f"SELECT {names} FROM patterns ORDER BY seq")
