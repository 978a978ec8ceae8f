"""Estimates how fast the state directory grows, from its journal: a few dozen lookups, whatever its length."""

import sqlite3
from pathlib import Path
from typing import NamedTuple

from apollod.adapters.journal.journal_file import free_bytes, reading
from apollod.core.schedules import DAY_NS, SECOND_NS

SPAN_MIN_NS = 600 * SECOND_NS
"""a younger journal says nothing about a day"""

_HISTORY = """
    WITH written AS (SELECT seq, body ->> '$.path' AS path, body ->> '$.bytes' AS bytes FROM events
                     WHERE kind = 'checkpoint.committed'),
         removed AS (SELECT seq, body ->> '$.path' AS path FROM events
                     WHERE kind = 'checkpoint.removed' AND seq >= :first)
    SELECT (SELECT coalesce(sum(bytes), 0) FROM written WHERE seq >= :first)
         - (SELECT coalesce(sum(w.bytes), 0) FROM removed AS r JOIN written AS w ON w.seq = (
                SELECT max(seq) FROM written WHERE path = r.path AND seq < r.seq))
"""


class Growth(NamedTuple):
    """Growth during the last day before the newest event, in bytes a day; `days_left`: until the disk is full, None if
    never."""

    journal_per_day: int
    history_per_day: int
    days_left: float | None


def growth(journal: Path) -> Growth | None:
    """None for a journal that is younger than ten minutes. Blocking. Raises JournalError.

    Events are ordered by number and times are what a clock said: after a clock was set back the day may be longer or
    shorter, and the figures are as wrong as the clock.
    """
    with reading(journal) as db:
        newest = db.execute("SELECT seq, at_ns FROM events ORDER BY seq DESC LIMIT 1").fetchone()
        if newest is None:
            return None
        last, last_ns = newest
        carried, carried_bytes = _carried(db)
        if last == carried:
            return None
        first = _first_after(db, carried + 1, last, last_ns - DAY_NS)
        span_ns = last_ns - _at_ns(db, first)
        if span_ns < SPAN_MIN_NS:
            return None
        (history,) = db.execute(_HISTORY, {"first": first}).fetchone()
    grown = max(0, journal.stat().st_size - carried_bytes)
    of_file = grown * (last - first + 1) / (last - carried)  # events are of about the same length every day
    journal_per_day = int(of_file * DAY_NS / span_ns)
    history_per_day = max(0, int(history * DAY_NS / span_ns))  # what is removed makes room once
    total = journal_per_day + history_per_day
    return Growth(journal_per_day, history_per_day, round(free_bytes(journal) / total, 1) if total else None)


def _carried(db: sqlite3.Connection) -> tuple[int, int]:
    """The last event that the journal took over from its archive, and the size of the file up to there; 0 and 0 where
    it has none."""
    (seq,) = db.execute("SELECT coalesce(max(seq), 0) FROM events WHERE kind = 'journal.carried'").fetchone()
    row = db.execute("SELECT value FROM meta WHERE key = 'carried_bytes'").fetchone()
    return int(seq), int(row[0]) if row else 0


def _first_after(db: sqlite3.Connection, low: int, high: int, at_ns: int) -> int:
    """The first event between these two that is not older, by bisection."""
    while low < high:
        middle = (low + high) // 2
        if _at_ns(db, middle) >= at_ns:
            high = middle
        else:
            low = middle + 1
    return low


def _at_ns(db: sqlite3.Connection, seq: int) -> int:
    (at_ns,) = db.execute("SELECT at_ns FROM events WHERE seq = ?", (seq,)).fetchone() or (0,)
    return int(at_ns)
