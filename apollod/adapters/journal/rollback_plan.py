"""A way back to earlier weights, read from the journal file from its end."""

from bisect import bisect_left
from collections.abc import Mapping
from pathlib import Path
from typing import Generic, TypeVar

from apollod.adapters.journal import journal_reader
from apollod.core import events as ev
from apollod.core.inputs import RollbackPlanned
from apollod.core.rollback.way_back import NotRead, way_back
from apollod.errors import JournalError
from apollod.wire.event_codec import decode_event

E = TypeVar("E", bound=ev.Event)

PAGE = 5000
SECONDS = 60.0


def plan_way_back(journal: Path, to: int, version: int, checkpoints: Mapping[int, str]) -> RollbackPlanned:
    """How to get from `version` back to step `to`; see `core.rollback.way_back`. Blocking. Never raises: an error is
    an answer."""
    try:
        return _plan(journal, to, version, checkpoints)
    except (JournalError, NotRead) as error:
        reason = error.line() if isinstance(error, JournalError) else f"there is no {error} in the journal"
        return RollbackPlanned(to=to, version=version, error=reason)


def tiers_of(journal: Path, examples: list[str]) -> list[tuple[str, ev.Tier]]:
    """The tier in which each example was accepted; unknown ones are left out. Blocking. Raises JournalError."""
    return [
        (example, event.tier)
        for example in examples
        if (event := journal_reader.accepted(journal, example)) is not None
    ]


def _plan(journal: Path, to: int, version: int, checkpoints: Mapping[int, str]) -> RollbackPlanned:
    lives, bindings = _InForce(journal, ev.DaemonStarted), _InForce(journal, ev.TrainerBound)
    started: dict[int, ev.StepStarted] = {}
    completed: dict[int, ev.StepCompleted] = {}
    seqs: dict[int, int] = {}

    def settings_of(step: int) -> ev.Settings:
        life = lives.at(seqs[step])
        assert life is not None, "a step before any life"
        return life.settings

    def bound_of(step: int) -> ev.TrainerBound | None:
        return bindings.at(seqs[step])

    before = 1 << 62
    while True:
        page = _events(journal, ("step.started", "step.completed"), before, PAGE)
        for seq, event in page:
            if isinstance(event, ev.StepStarted):
                started.setdefault(event.step, event)
            elif isinstance(event, ev.StepCompleted):
                completed[event.step], seqs[event.step] = event, seq
        try:
            return way_back(started, completed, settings_of, bound_of, to, version, checkpoints)
        except NotRead:
            if not page:
                raise
            before = page[-1][0]


class _InForce(Generic[E]):
    """All events of a kind, of which each is in force until the next."""

    def __init__(self, journal: Path, kind: type[E]) -> None:
        found = _events(journal, (kind.kind,), 1 << 62)[::-1]
        self._events = [event for _, event in found if isinstance(event, kind)]
        self._seqs = [seq for seq, _ in found]

    def at(self, seq: int) -> E | None:
        """The last one before an event; the first one where that comes later."""
        return self._events[max(0, bisect_left(self._seqs, seq) - 1)] if self._events else None


def _events(journal: Path, kinds: tuple[str, ...], before: int, limit: int = 1 << 30) -> list[tuple[int, ev.Event]]:
    """Events of these kinds with smaller sequence numbers, newest first."""
    names = ", ".join(f"'{kind}'" for kind in kinds)
    sql = f"SELECT seq, kind, version, body FROM events WHERE kind IN ({names}) AND seq < {before} ORDER BY seq DESC"
    rows = journal_reader.query(journal, sql, limit, SECONDS).rows
    return [(seq, decode_event(kind, version, body)) for seq, kind, version, body in rows]
