"""All examples that were accepted, some at a time, and what became of them: in the journal, and in the archives on
which it goes on, as far as they are still there. Blocking; reads beside the running daemon."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from apollod.adapters.journal.example_places import listed
from apollod.adapters.journal.journal_reader import ROWS, continued, query, stream
from apollod.core.events import ExampleAccepted
from apollod.wire.event_codec import decode_event

SECONDS = 60.0


class Accepted(NamedTuple):
    """`record`: canonical."""

    seq: int
    example: str
    record: bytes


def journals(path: Path) -> list[Path]:
    """The journal, the archive that it goes on from, the one before that. Raises JournalError."""
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
    """Id and state (`core.example_state`) of all examples of a journal; `judged` for what is held for the judge. Raises
    JournalError."""
    sql = """SELECT id, CASE WHEN state = 'held' AND waits_for = 'judge' THEN 'judged' ELSE state END
        FROM examples LEFT JOIN (SELECT example, max(seq), waits_for FROM reviews GROUP BY example) ON example = id"""
    yield from stream(path, sql, SECONDS)


def places(path: Path, examples: Sequence[str]) -> dict[str, str]:
    """Where given examples of a journal came from, for people: file and line, or what else gave them. Raises
    JournalError."""
    sql = f"""SELECT e.id, coalesce(s.path, e.source), e.line FROM examples AS e
        LEFT JOIN (SELECT source, path FROM sources GROUP BY source) AS s ON s.source = e.source
        WHERE e.id IN ({listed(examples)})"""
    rows = query(path, sql, len(examples) + 1, SECONDS).rows
    return {id_: f"{place}:{line}" if line else str(place) for id_, place, line in rows}
