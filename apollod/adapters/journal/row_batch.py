"""The rows of one transaction of the journal, made of the events that wait, and the statement that inserts them.

Everything here is done for every event of a group commit while nothing else happens, which is why it is spelt out: flat
lists, one loop, one statement.
"""

import asyncio
from collections import deque
from functools import cache
from typing import Any, NamedTuple

from apollod.core.events import Event, ExampleAccepted, Recorded, SignalFlagged
from apollod.wire.event_codec import chain

EVENTS_MAX = 512  # in a transaction, overshot by at most one append; chaining them holds the event loop for about 1 ms
BYTES_MAX = 8 << 20
STATEMENT_ROWS_MAX = 1024  # a batch with more takes several statements; SQLite takes 32766 values in one

Done = asyncio.Future[list[Recorded]]
"""Where a caller waits."""

Waiting = tuple[Event, bytes, int, Done | None]
"""An event, its body, its time; with the last event of an append comes its caller."""

# bound one after the other: Python 3.12 warns of numbered parameters, at a microsecond each, and 3.14 refuses them
_COLUMNS = 8


class Batch(NamedTuple):
    """Rows in the order of their events, and what becomes of them after the commit."""

    values: list[Any]
    """seq, at_ns, kind, version, key, body, prev_hash, hash of each row, flat"""
    callers: list[Done]
    answers: list[list[Recorded]]
    """of each caller"""
    to_know: list[tuple[ExampleAccepted | SignalFlagged, int]]
    """what is known from then on, with the number of the event"""

    @property
    def head(self) -> tuple[int, bytes]:
        """Number and hash of the last row."""
        return self.values[-_COLUMNS], bytes(self.values[-1])

    def statements(self) -> list[tuple[str, list[Any]]]:
        """Inserts and their values; nearly always one."""
        step = STATEMENT_ROWS_MAX * _COLUMNS
        parts = [self.values[begin : begin + step] for begin in range(0, len(self.values), step)]
        return [(_insert(len(part) // _COLUMNS), part) for part in parts]


def take(waiting: deque[Waiting], seq: int, prev: bytes) -> Batch:
    """Whole appends from the front of `waiting`, up to the limits, as rows after event `seq` with hash `prev`."""
    values: list[Any] = []
    batch = Batch(values, [], [], [])
    callers, answers = batch.callers, batch.answers
    recorded: list[Recorded] = []
    taken = size = 0
    before = bytearray(prev)  # bound as it is; bytes go through sqlite3's search for an adapter first, at 0.4 µs each
    for event, body, at_ns, done in waiting:
        seq += 1
        kind, version, key = event.kind, event.version, event.key()
        hash_ = bytearray(chain(before, seq, at_ns, kind, version, key, body))
        values += seq, at_ns, kind, version, key, body.decode(), before, hash_
        before = hash_
        recorded.append(Recorded(seq, at_ns, event))
        if type(event) is ExampleAccepted or type(event) is SignalFlagged:
            batch.to_know.append((event, seq))
        taken += 1
        size += len(body)
        if done is not None:
            callers.append(done)
            answers.append(recorded)
            if taken >= EVENTS_MAX or size >= BYTES_MAX:
                break
            recorded = []
    if taken == len(waiting):
        waiting.clear()
    else:
        for _ in range(taken):
            waiting.popleft()
    return batch


@cache
def _insert(rows: int) -> str:
    row = f"({', '.join('?' * _COLUMNS)})"
    return (
        f"INSERT INTO events (seq, at_ns, kind, version, key, body, prev_hash, hash) VALUES {', '.join([row] * rows)}"
    )
