"""Shows the quality guard to people: its part of `status`, and the story of each incident."""

from collections.abc import Mapping
from functools import lru_cache
from typing import TypeVar

import msgspec

from apollod.core.activities import Activity, blocked
from apollod.core.facts.quality.events import QualityAlarmed, QualityMeasured, QualityTold
from apollod.core.facts.quality.looking import compared_with, due, standing, worse
from apollod.core.facts.quality.sequential import Baseline, drops, interval
from apollod.core.facts.quality.state import Incident, QualityState, WaitsFor, waits_for
from apollod.core.kernel.composing import composed
from apollod.core.kernel.event import Event, Recorded
from apollod.core.settings import QualitySettings
from apollod.core.state import State


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """An incident of the quality guard that is not settled."""

    number: int
    step: int
    """step whose weights were worse"""
    to: int
    """the last good step"""
    metrics: list[str]
    """metrics that were worse, the most certain first"""
    phase: str
    """`alarmed`: the weights go back to `to`; `restored`: they are served; `searching`: replays, or a ranking, search
    for the harmful examples; `named`: there is a verdict; `stuck`: the weights of `to` cannot be reached"""
    reason: str = ""
    """why they cannot be reached, or why the cause is not known; for verdict `rate`, the learning rate to use"""
    replays: int = 0
    """replays begun so far"""
    replays_max: int = 0
    verdict: str = ""
    """verdict of the search, see `quality.named`; empty before it"""
    culprits: list[str] = []
    """harmful examples, which are held"""
    again: int = 0
    """number of steps of the others still to be repeated"""


class QualityMetric(msgspec.Struct, frozen=True, kw_only=True):
    """A metric of the baseline, in its unit: the share of answers that pass, or the loss of texts in nats a token."""

    name: str
    value: float | None
    """value at the last look, as are `drop` and its interval; null: not measured since the baseline"""
    baseline: float
    drop: float | None
    """drop below the baseline; below 0: better"""
    low: float | None
    high: float | None
    """95 % interval of the drop, by that look alone"""
    margin: float
    """the allowed drop"""
    alarmed: bool
    """the open alarm names it"""


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """State of the quality guard."""

    enabled: bool = False
    """the model is measured regularly"""
    looks: int = 0
    """measurements over the life of the journal, including baselines and failed ones"""
    baseline: int | None = None
    """step of the baseline; null: none yet"""
    step: int | None = None
    """step of the last measurement; null: none yet"""
    due: str = ""
    """reason for the next measurement: `baseline`, `steps`, `window`, `checkpoint`, `asked`; empty: none is due"""
    asked: str = ""
    """`run` or `baseline`: requested by a user; `checkpoint`: a checkpoint waits for it; empty: none"""
    running: bool = False
    """probes are being asked"""
    reason: str = ""
    """why a due measurement cannot begin now"""
    incident: Alarm | None = None
    error: str = ""
    """why the last measurement failed; empty after a success"""
    untold: str = ""
    """why a notification to `[quality] on_alarm` failed; empty after a delivery"""
    references_lost: str = ""
    """why, since the daemon started, looks cannot be compared with the baseline's distribution at every token, and the
    fix; empty: they can, or there is a new baseline"""
    metrics: list[QualityMetric] = []
    """by name; empty without a baseline"""
    failed: int = 0
    """failed ones among `looks`"""
    look_s: float | None = None
    """duration of the last measurement; null: none yet"""
    incidents: int = 0
    """alarms over the life of the journal; the next two likewise"""
    taken_back: int = 0
    """steps that alarms took back"""
    replays: int = 0
    """replays of searches for harmful examples"""


def status(state: State) -> Quality:
    """The last look's figures and the incident under way."""
    own, settings = state.quality, state.daemon.settings
    why = "" if settings is None else due(own, settings.quality) or ""
    incident, last = own.incident, max(own.looked, own.at)
    alarm = None if incident is None else composed(
        Alarm, incident, metrics=list(incident.metrics), replays=len(incident.replays),
        verdict=incident.verdict or "", culprits=list(incident.culprits), again=len(incident.again),
    )  # fmt: skip
    return composed(
        Quality, own, own.totals, enabled=settings is not None and settings.quality.every_steps > 0, looks=own.number,
        baseline=own.at if own.baseline else None, step=last if last >= 0 else None, due=why,
        running=own.open is not None,
        reason=blocked(Activity.MEASUREMENT, state) if why and own.open is None else "", untold=own.telling.error,
        metrics=last_look(own, settings.quality if settings is not None else QualitySettings()),
        look_s=own.last_s or None, incident=alarm,
    )  # fmt: skip


def last_look(own: QualityState, settings: QualitySettings) -> list[QualityMetric]:
    """Figures of each metric of the baseline, and of lessons, ordered by name; empty without a baseline."""
    worse_ones = own.incident.metrics if own.incident is not None else ()
    before = compared_with(own, own.last)
    return [_figures(own, settings, name, one, name in worse_ones) for name, one in sorted(before.items())]


def _figures(own: QualityState, settings: QualitySettings, name: str, before: Baseline, alarmed: bool) -> QualityMetric:
    test = standing(own, name, settings, before)
    look = own.last.get(name, {})
    found = drops(before, look, worse(name), test.scale)
    measured = [value for item, value in look.items() if value is not None and item in before.figures]
    low, high = _interval(tuple(found), test.scale) if found else (None, None)
    return QualityMetric(
        name=name, value=_mean(measured), baseline=_mean([*before.figures.values()]) or 0.0, drop=_mean(found),
        low=low, high=high, margin=test.margin, alarmed=alarmed,
    )  # fmt: skip


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


@lru_cache(maxsize=64)
def _interval(found: tuple[float, ...], scale: float) -> tuple[float, float]:
    """The interval of a metric. Cached: it takes milliseconds, and every status asks for it."""
    return interval(found, scale)


# Incidents of a whole journal, each with the events about it, for people who look back.
#
# Nothing is decided here: the state of an incident is that of the guard's slice, into which each event is folded first
# (`fold.py`). The slice forgets an incident that is settled; a story keeps it as it was then.

Kind = TypeVar("Kind", bound=Event)


class Story(msgspec.Struct):
    """An incident, with what it waits for (None once it is settled)."""

    incident: Incident
    waits: WaitsFor | None
    events: list[Recorded]
    """all that were taken while it was open, its messages, and `after`"""
    after: Recorded | None = None
    """the first look, or baseline, since it was settled"""
    alarm_after: bool = False
    """that look raised the next alarm"""
    answers: Mapping[str, tuple[str, str]] = {}
    """by probe that fell, the beginnings of its answers at the baseline and at the alarm"""

    def all(self, kind: type[Kind]) -> list[tuple[Recorded, Kind]]:
        """Events of a kind, in order."""
        return [(one, one.event) for one in self.events if isinstance(one.event, kind)]

    def last(self, kind: type[Kind]) -> Kind | None:
        """The last event of a kind; None without one."""
        return next((event for _, event in reversed(self.all(kind))), None)


def tell(stories: list[Story], recorded: Recorded, state: State) -> None:
    """Add the next event, which was folded into the guard's slice of `state`, to its story."""
    event, own, settings = recorded.event, state.quality, state.daemon.settings
    last = stories[-1] if stories else None
    if isinstance(event, QualityAlarmed) and own.incident is not None:
        if last is not None and last.after is not None:
            last.alarm_after = last.after.seq == recorded.seq - 1
        stories.append(last := Story(own.incident, "weights", [recorded]))
    elif isinstance(event, QualityTold):
        told = (one for one in reversed(stories) if one.incident.number == event.incident)
        if (about := next(told, None)) is not None:
            about.events.append(recorded)
    elif last is not None and last.waits is not None:
        last.events.append(recorded)
    elif last is not None and last.after is None and isinstance(event, QualityMeasured) and event.why != "restored":
        last.after = recorded
        last.events.append(recorded)
    if last is not None and last.waits is not None:
        manual = settings is not None and settings.quality.resume == "manual"
        last.waits = waits_for(own, own.incident, manual) if own.incident is not None else None
