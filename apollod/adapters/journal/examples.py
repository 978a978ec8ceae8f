"""Looks up accepted examples in the journal file, and in the archives on which it goes on, as far as they are still
there: records, states, places, deciders, answers. Blocking; reads beside the running daemon."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from apollod.adapters.journal.journal_reader import ROWS, continued, literal, query, stream
from apollod.core.events import ExampleAccepted
from apollod.core.facts.intake.events import Removed
from apollod.curation.surrounding_texts import Recorded
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
