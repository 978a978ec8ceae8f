"""Verifies what a journal derives from its events. No hash covers it, and every view, `why` and the daemon's start
rely on it.

An entry that is missing in the index on `kind`, for example after one flipped bit, makes events invisible to every
question that asks for their kind; an example missing in `example_index` would be learned twice.
"""

import re
import sqlite3
from pathlib import Path
from shlex import quote

from apollod.adapters.journal.failures import explain
from apollod.adapters.journal.journal_file import reading
from apollod.errors import JournalError

EMPTY_INDEX = "DELETE FROM example_index; UPDATE meta SET value = '0' WHERE key = 'indexed_seq'"
"""Makes the next start fill the index anew, from the events."""

_COMPLETE = "(SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'indexed_seq')"
_RESPONSES_COMPLETE = "(SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'responses_indexed_seq')"
_RESPONSES = f"""
    SELECT events.seq FROM events, json_each(events.body, '$.responses') AS response
    WHERE kind IN ('example.accepted', 'example.carried') AND events.seq <= {_RESPONSES_COMPLETE}
    AND NOT EXISTS (SELECT 1 FROM response_index WHERE id = response.value) ORDER BY events.seq LIMIT 1
"""
_EMPTY_RESPONSES = "DELETE FROM response_index; UPDATE meta SET value = '0' WHERE key = 'responses_indexed_seq'"
_SIGNALS_COMPLETE = "(SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'signals_indexed_seq')"
_SIGNALS = f"""
    SELECT seq FROM events WHERE kind = 'signal.flagged' AND seq <= {_SIGNALS_COMPLETE}
    AND NOT EXISTS (SELECT 1 FROM signal_index WHERE id = events.key)
    UNION ALL
    SELECT events.seq FROM events, json_each(events.body, '$.signals') AS signal
    WHERE kind = 'example.carried' AND events.seq <= {_SIGNALS_COMPLETE}
    AND NOT EXISTS (SELECT 1 FROM signal_index WHERE id = signal.value) ORDER BY 1 LIMIT 1
"""
_EMPTY_SIGNALS = "DELETE FROM signal_index; UPDATE meta SET value = '0' WHERE key = 'signals_indexed_seq'"
_EXAMPLES = (  # what is wrong with one, and how to find the first
    (
        "it is said to be complete up to event {}, which is not there",
        f"SELECT coalesce({_COMPLETE}, 'NULL') WHERE coalesce({_COMPLETE} NOT BETWEEN 0 AND (SELECT "
        "coalesce(max(seq), 0) FROM events), 1)",
    ),
    (
        "the example that event {} accepted is missing",
        f"""SELECT seq FROM events WHERE kind = 'example.accepted' AND seq <= {_COMPLETE}
            AND NOT EXISTS (SELECT 1 FROM example_index WHERE id = events.key) ORDER BY seq LIMIT 1""",
    ),
    (
        "an example that event {} carried over is missing",
        f"""SELECT events.seq FROM events, json_each(events.body, '$.examples') AS carried
            WHERE kind = 'example.carried' AND events.seq <= {_COMPLETE}
            AND NOT EXISTS (SELECT 1 FROM example_index WHERE id = carried.value) ORDER BY events.seq LIMIT 1""",
    ),
    (
        "it names event {} for an example that was not accepted there",
        """SELECT seq FROM example_index AS found
           WHERE NOT EXISTS (
               SELECT 1 FROM events WHERE seq = found.seq AND kind = 'example.accepted' AND key = found.id
           ) AND NOT EXISTS (
               SELECT 1 FROM events WHERE seq = found.seq AND kind = 'example.carried'
               AND instr(body, '"' || found.id || '"')
           ) LIMIT 1""",
    ),
)


def damage(path: str | Path) -> JournalError | None:
    """What is wrong beside the events, with the way out, or None. Seconds for a million events.

    Raises JournalError when the file cannot be read.
    """
    with reading(path) as db:
        try:
            ((found,),) = db.execute("PRAGMA integrity_check(1)")
            if found != "ok":
                return _of_pages(path, " ".join(found.split()))
            for what, sql in _EXAMPLES:
                for (seq,) in db.execute(sql):
                    return _fixed_by(f"in example_index {what.format(seq)}", path, EMPTY_INDEX)
            for (seq,) in db.execute(_RESPONSES) if _has(db, "response_index") else ():
                what = f"in response_index an answer that event {seq} says is missing"
                return _fixed_by(what, path, _EMPTY_RESPONSES)
            for (seq,) in db.execute(_SIGNALS) if _has(db, "signal_index") else ():
                return _fixed_by(f"in signal_index the signal of event {seq} is missing", path, _EMPTY_SIGNALS)
        except sqlite3.Error as error:
            raise explain(path, error) from error
    return None


def _has(db: sqlite3.Connection, table: str) -> bool:
    """Journals of before it have no such table."""
    return db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone() is not None


def _of_pages(path: str | Path, found: str) -> JournalError:
    """SQLite's own words name the index, where it is one whose rows do not fit those of its table."""
    if index := re.search(r"(?:from|in) index (\w+)$", found):
        return _fixed_by(found, path, f"REINDEX {index[1]}")
    return JournalError(
        found, f"restore a backup, or save the events of this file: `sqlite3 {quote(str(path))} .recover`"
    )


def _fixed_by(what: str, path: str | Path, sql: str) -> JournalError:
    return JournalError(
        what,
        f'it is made anew from the events: stop the daemon, `sqlite3 {quote(str(path))} "{sql}"`, and verify again',
    )
