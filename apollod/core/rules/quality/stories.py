"""Incidents of a whole journal, each with the events about it, for people who look back. Pure.

Nothing is decided here: the state of an incident is that of the guard's slice, into which each event is folded first
(`fold.py`). The slice forgets an incident that is settled; a story keeps it as it was then.
"""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from apollod.core.facts.quality.events import QualityAlarmed, QualityMeasured, QualityTold
from apollod.core.facts.quality.resuming import WaitsFor, waits_for
from apollod.core.facts.quality.state import Incident
from apollod.core.kernel.event import Event, Recorded
from apollod.core.state import State

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
