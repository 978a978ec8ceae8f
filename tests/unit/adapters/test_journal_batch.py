"""Which of the events that wait become one transaction, and that its statements write the rows that the chain is
over."""

import asyncio
import re
import sqlite3
from collections import deque
from contextlib import closing

import msgspec
import pytest

from apollod.adapters.journal import row_batch
from apollod.adapters.journal.journal_reader import SELECT
from apollod.adapters.journal.row_batch import Batch, Done, Waiting, take
from apollod.core import events as ev
from apollod.wire.event_codec import GENESIS, encode_body, fitting

TABLE = "CREATE TABLE events (seq INTEGER PRIMARY KEY, at_ns, kind, version, key, body, prev_hash, hash)"


def waiting_for(*appends: int) -> tuple[deque[Waiting], list[Done]]:
    """Appends of so many events each."""
    waiting: deque[Waiting] = deque()
    callers: list[Done] = []
    loop = asyncio.new_event_loop()
    for number, events in enumerate(appends):
        callers.append(loop.create_future())
        for place in range(events):
            event = ev.ExampleEncoded(example=f"{number}.{place}", tokens=1, targets=1, cut=0, digest="é")
            waiting.append((event, encode_body(event), 1000 + number, callers[-1] if place == events - 1 else None))
    loop.close()
    return waiting, callers


def written(batches: list[Batch]) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute(TABLE)
        db.text_factory = bytes
        for batch in batches:
            for sql, values in batch.statements():
                db.execute(sql, values)
        return db.execute(f"{SELECT} ORDER BY seq").fetchall()


@pytest.mark.parametrize("rows_max", [1, 2, 3, 7, 8, 1024])
def test_the_rows_are_a_chain_however_many_go_into_a_statement(rows_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_batch, "STATEMENT_ROWS_MAX", rows_max)
    waiting, _ = waiting_for(1, 3, 1, 2)
    first = take(waiting, 0, GENESIS)
    more, _ = waiting_for(1)
    second = take(more, *first.head)
    rows = written([first, second])
    assert fitting(rows, 0, GENESIS) == len(rows) == 8
    assert (rows[6][0], rows[6][-1]) == first.head and (rows[7][0], rows[7][-1]) == second.head
    assert [row[4] for row in rows] == [b"0.0", b"1.0", b"1.1", b"1.2", b"2.0", b"3.0", b"3.1", b"0.0"]
    assert [row[1] for row in rows[:7]] == [1000, 1001, 1001, 1001, 1002, 1003, 1003]


def test_parameters_are_bound_in_order_and_not_by_number() -> None:
    """Python 3.14 refuses a sequence for `?1`; nobody sees the warning of 3.12, which took four times as long as the
    rows."""
    waiting, _ = waiting_for(3)
    ((sql, values),) = take(waiting, 0, GENESIS).statements()
    assert sql.count("?") == len(values) and not re.search(r"\?\d", sql)


def test_every_caller_is_answered_with_its_own_events() -> None:
    waiting, callers = waiting_for(1, 3, 2)
    batch = take(waiting, 10, GENESIS)
    assert batch.callers == callers
    assert [[(r.seq, r.event.key()) for r in answer] for answer in batch.answers] == [
        [(11, "0.0")],
        [(12, "1.0"), (13, "1.1"), (14, "1.2")],
        [(15, "2.0"), (16, "2.1")],
    ]


def test_a_batch_ends_with_the_append_that_reaches_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_batch, "EVENTS_MAX", 4)
    waiting, callers = waiting_for(3, 3, 3)
    first = take(waiting, 0, GENESIS)
    assert first.callers == callers[:2] and first.head[0] == 6 and len(waiting) == 3
    assert take(waiting, *first.head).callers == callers[2:] and not waiting


def test_large_bodies_end_a_batch_too(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, callers = waiting_for(1, 1, 1)
    monkeypatch.setattr(row_batch, "BYTES_MAX", len(waiting[0][1]) + 1)
    assert take(waiting, 0, GENESIS).callers == callers[:2] and len(waiting) == 1


@pytest.mark.parametrize(
    "event",
    [
        ev.ExampleAccepted(example="a", record=msgspec.Raw(b"{}"), source="s", line=1),
        ev.SignalFlagged("ab", "undo", "bad", 0.8, "a", "s", 1),
    ],
    ids=lambda event: event.kind,
)
def test_what_is_known_from_then_on_is_told(event: ev.ExampleAccepted | ev.SignalFlagged) -> None:
    waiting, _ = waiting_for(2, 1)
    caller = waiting.pop()[3]
    waiting.append((event, encode_body(event), 5, caller))
    assert take(waiting, 0, GENESIS).to_know == [(event, 3)]
