"""Looks up accepted examples in the journal file, and in the archives on which it goes on, as far as they are still
there: records, states, places, deciders, answers. Blocking; reads beside the running daemon."""

import json
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import msgspec

from apollod.adapters.journal import journal_reader
from apollod.adapters.journal.journal_reader import ROWS, continued, literal, query, stream
from apollod.core import events as ev
from apollod.core.events import ExampleAccepted
from apollod.core.facts.intake.events import Removed
from apollod.core.inputs import ForgetPlanned, RollbackPlanned
from apollod.core.rules.forgetting import plan
from apollod.core.rules.rollback import NotRead, way_back
from apollod.curation.surrounding_texts import Recorded
from apollod.errors import JournalError
from apollod.wire.event_codec import decode_event

SECONDS = 60.0
ROWS_MAX = (1 << 31) - 2


class Accepted(NamedTuple):
    """An accepted example. `seq`: of its event; `record`: canonical."""

    seq: int
    example: str
    record: bytes


def journals(path: Path) -> list[Path]:
    """The journal, the archive that it goes on from, and all before that one. Raises JournalError."""
    found = [path]
    while (before := continued(found[-1])) is not None and (archive := Path(before.archive)).exists():
        if archive in found:
            break
        found.append(archive)
    return found


def accepted_after(path: Path, seq: int) -> list[Accepted]:
    """The next examples of a journal after an event, in order, up to ROWS of them. Raises JournalError."""
    sql = f"""SELECT seq, kind, version, body FROM events WHERE kind = 'example.accepted' AND seq > {int(seq)}
        ORDER BY seq LIMIT {ROWS}"""
    found = []
    for number, kind, version, body in query(path, sql, ROWS, SECONDS).rows:
        event = decode_event(kind, version, body)
        assert isinstance(event, ExampleAccepted)
        found.append(Accepted(number, event.example, bytes(event.record)))
    return found


def states(path: Path) -> Iterator[tuple[str, str]]:
    """Id and state (`core.example_state`) of all examples of a journal; `judged` for one that is held for the judge.
    Raises JournalError."""
    sql = """SELECT id, CASE WHEN state = 'held' AND waits_for = 'judge' THEN 'judged' ELSE state END
        FROM examples LEFT JOIN (SELECT example, max(seq), waits_for FROM reviews GROUP BY example) ON example = id"""
    yield from stream(path, sql, SECONDS)


def places(path: Path, examples: Sequence[str]) -> dict[str, str]:
    """Origins of given examples of a journal, for people: file and line, or the source as it is named. Raises
    JournalError."""
    sql = f"""SELECT e.id, coalesce(s.path, e.source), e.line FROM examples AS e
        LEFT JOIN (SELECT source, path FROM sources GROUP BY source) AS s ON s.source = e.source
        WHERE e.id IN ({listed(examples)})"""
    rows = query(path, sql, len(examples) + 1, SECONDS).rows
    return {id_: f"{place}:{line}" if line else str(place) for id_, place, line in rows}


def states_of(path: Path, examples: Sequence[str]) -> dict[str, str]:
    """States (`core.example_state`) by id; unknown ids are left out. Raises JournalError."""
    sql = f"SELECT id, state FROM examples WHERE id IN ({listed(examples)})"
    return {str(id_): str(state) for id_, state in query(path, sql, row_limit=len(examples) + 1).rows}


def deciders_of(path: Path, examples: Sequence[str]) -> dict[str, str]:
    """The person or judge that decided last, by id; undecided ones are left out. Raises JournalError."""
    sql = f"SELECT example, max(seq), by FROM reviews WHERE example IN ({listed(examples)}) GROUP BY example"
    found = query(path, sql, row_limit=len(examples) + 1).rows
    return {str(id_): str(by) for id_, _, by in found if by}


def listed(examples: Sequence[str]) -> str:
    """SQL that selects these ids."""
    ids = json.dumps(list(examples)).replace("'", "''")
    return f"SELECT value FROM json_each('{ids}')"


def source_examples(journal: Path, source: str) -> list[str]:
    """Ids of all examples that were accepted from a source, given by its identity or by its path, in order. Raises
    JournalError."""
    named = literal(source)
    sql = f"""
        SELECT key FROM events WHERE kind = 'example.accepted' AND body ->> '$.source' IN (
            SELECT {named} UNION SELECT source FROM sources WHERE path = {named}
        ) ORDER BY seq
    """
    return [id_ for (id_,) in query(journal, sql, ROWS_MAX, SECONDS).rows]


# --- answers and lessons --------------------------------------------------------------------------------------------


ANSWERS_MAX = 100
"""examples that answer one question, the newest ones"""
SAID = ("trained", "skipped", "pending")
"""states in which the model answers as the example does, or is to"""


class Taught(NamedTuple):
    """A lesson and its statement, or its question and answer, as a text."""

    lesson: str
    says: str


def lessons_about(path: Path, subjects: Sequence[str], lesson: str, most: int) -> list[Taught]:
    """Other lessons, taught or known, whose text has one of these words, in small letters; the newest first. Raises
    JournalError."""
    if not subjects:
        return []
    found = " OR ".join(f"instr(says, {literal(one)})" for one in subjects)
    sql = f"""SELECT lesson, text FROM (
            SELECT lesson, text, lower(text) AS says FROM (
                SELECT lesson, coalesce(statement, question || ' ' || answer) AS text FROM lessons
                WHERE kind <> 'behaviour' AND state IN ('practising', 'known', 'fading') AND lesson <> {literal(lesson)}
            )
        ) WHERE {found} ORDER BY CAST(substr(lesson, 2) AS INTEGER) DESC LIMIT {int(most)}"""
    return [Taught(*row) for row in query(path, sql, most, SECONDS).rows]


def answers_before(path: Path, question: str, lesson: str) -> list[ExampleAccepted]:
    """Examples with this `question`, accepted before the lesson was given, in one of the states SAID; the newest first.
    Looks through the whole journal, but not its archives. Raises JournalError."""
    text = '"question":' + msgspec.json.encode(question).decode()
    sql = f"""SELECT kind, version, body FROM events
        WHERE kind = 'example.accepted' AND instr(body, {literal(text)}) AND body ->> '$.question' = {literal(question)}
            AND seq < (SELECT min(seq) FROM events WHERE kind = 'lesson.given' AND key = {literal(lesson)})
        ORDER BY seq DESC LIMIT {ANSWERS_MAX}"""
    found = [decode_event(*row) for row in query(path, sql, ANSWERS_MAX, SECONDS).rows]
    events = [event for event in found if isinstance(event, ExampleAccepted)]
    became = states_of(path, [event.example for event in events]) if events else {}
    return [event for event in events if became.get(event.example) in SAID]


# --- a user's own conversations, which `curation/surrounding_texts.py` prepares --------------------------------------


OWN_MAX = 100
OWN_BYTES_MAX = 64 << 20
OWN_SECONDS = 10.0
_OWN = f"""SELECT body ->> '$.record', coalesce(body ->> '$.removed', '[]') FROM events
    WHERE kind = 'example.accepted'
        AND body ->> '$.source' NOT LIKE 'dream:%' AND body ->> '$.source' NOT LIKE 'lesson:%'
    ORDER BY seq DESC LIMIT {OWN_MAX}"""


def own_records(journal: Path) -> list[Recorded]:
    """A user's own conversations, the newest ones in the order of acceptance: accepted from logs, captures, files and
    requests, and not made by apollod itself. Raises JournalError."""
    rows = query(journal, _OWN, OWN_MAX, OWN_SECONDS, OWN_BYTES_MAX).rows
    return [
        Recorded(record.encode(), msgspec.json.decode(removed, type=tuple[Removed, ...]))
        for record, removed in reversed(rows)
    ]


# Plan rollbacks to earlier weights, and the steps to repeat after forgetting, reading the journal from its end.

E = TypeVar("E", bound=ev.Event)
Planned = TypeVar("Planned", ForgetPlanned, RollbackPlanned)

PAGE = 5000


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
