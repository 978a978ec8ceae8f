"""Plan rollbacks to earlier weights, and the steps to repeat after forgetting, reading the journal from its end."""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from apollod.adapters.journal import journal_reader
from apollod.adapters.journal.examples import states_of
from apollod.core import events as ev
from apollod.core.inputs import ForgetPlanned, RollbackPlanned
from apollod.core.rules.forgetting import plan
from apollod.core.rules.rollback import NotRead, way_back
from apollod.errors import JournalError
from apollod.wire.event_codec import decode_event

E = TypeVar("E", bound=ev.Event)
Planned = TypeVar("Planned", ForgetPlanned, RollbackPlanned)

PAGE = 5000
SECONDS = 60.0


def plan_way_back(journal: Path, to: int, version: int, checkpoints: Mapping[int, str]) -> RollbackPlanned:
    """Plan the way from `version` back to step `to`; see `core.rules.rollback`. Blocking. Never raises: an error is
    an answer."""
    try:
        return _plan(journal, to, version, checkpoints)
    except (JournalError, NotRead) as error:
        return RollbackPlanned(to=to, version=version, error=_reason(error))


def tiers_of(journal: Path, examples: list[str]) -> list[tuple[str, ev.Tier]]:
    """The tier in which each example was accepted; unknown ones are left out. Blocking. Raises JournalError."""
    return [
        (example, event.tier)
        for example in examples
        if (event := journal_reader.accepted(journal, example)) is not None
    ]


def plan_forget(journal: Path, wanted: Sequence[str], version: int, most: int) -> ForgetPlanned:
    """Plan the steps to repeat without the examples in `wanted`; see `core.rules.forgetting`. Blocking. Never raises:
    errors are returned in the plan."""
    begun = journal_reader.continued(journal)
    begins = begun.step if begun is not None else 0
    try:
        steps = _Steps(journal)
        found = steps.read_for(
            lambda: plan(
                steps.started, steps.completed, steps.settings_of, steps.bound_of,
                lambda examples: dict(tiers_of(journal, list(examples))), wanted, version, most, begins,
            )
        )  # fmt: skip
        states = states_of(journal, found.far) if found.far else {}
    except (JournalError, NotRead) as error:
        return ForgetPlanned(version=version, error=_reason(error))
    absent = tuple(one for one in found.far if states.get(one) != "trained")
    return msgspec.structs.replace(found, absent=absent, far=tuple(one for one in found.far if one not in absent))


def _plan(journal: Path, to: int, version: int, checkpoints: Mapping[int, str]) -> RollbackPlanned:
    steps = _Steps(journal)
    return steps.read_for(
        lambda: way_back(
            steps.started, steps.completed, steps.settings_of, steps.bound_of, to, version, checkpoints
        )
    )  # fmt: skip


def _reason(error: JournalError | NotRead) -> str:
    return error.line() if isinstance(error, JournalError) else f"there is no {error} in the journal"


class _Steps:
    """Steps of a journal by number, the newest first, as far as they were read."""

    def __init__(self, journal: Path) -> None:
        self._journal, self._before = journal, 1 << 62
        self._lives, self._bindings = _InForce(journal, ev.DaemonStarted), _InForce(journal, ev.TrainerBound)
        self._seqs: dict[int, int] = {}
        self.started: dict[int, ev.StepStarted] = {}
        self.completed: dict[int, ev.StepCompleted] = {}

    def settings_of(self, step: int) -> ev.Settings:
        """The settings in force when a step was done."""
        life = self._lives.at(self._seqs[step])
        assert life is not None, "a step before any life"
        return life.settings

    def bound_of(self, step: int) -> ev.TrainerBound | None:
        """The trainer's binding then."""
        return self._bindings.at(self._seqs[step])

    def read_for(self, work: Callable[[], Planned]) -> Planned:
        """Run `work`, reading older steps until it has all it needs. Raises JournalError, and NotRead for a missing
        step."""
        while True:
            page = _events(self._journal, ("step.started", "step.completed"), self._before, PAGE)
            for seq, event in page:
                if isinstance(event, ev.StepStarted):
                    self.started.setdefault(event.step, event)
                elif isinstance(event, ev.StepCompleted):
                    self.completed[event.step], self._seqs[event.step] = event, seq
            try:
                return work()
            except NotRead:
                if not page:
                    raise
                self._before = page[-1][0]


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
