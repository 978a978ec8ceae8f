"""Verifies what no hash of the journal covers: objects derived from its events, and the quality guard's references.

Every view, `why` and the daemon's start rely on derived objects. An entry that is missing in the index on `kind`, for
example after one flipped bit, makes events invisible to every question that asks for their kind; an example missing in
`example_index` would be learned twice.

Only the baseline in force needs its file of references: those of earlier ones are removed. A copy of a journal, or an
archive, is therefore not asked for one: the daemon may have another baseline by now.
"""

import re
import sqlite3
from pathlib import Path
from shlex import quote
from sys import maxsize

from apollod.adapters import update_files
from apollod.adapters.journal import blobs, journal_reader
from apollod.adapters.journal.journal_file import explain, reading
from apollod.core.events import DaemonStarted, QualityMeasured
from apollod.errors import JournalError
from apollod.wire.event_codec import decode_event
from apollod.wire.updates import NAME as UPDATES

EMPTY_INDEX = "DELETE FROM example_index; UPDATE meta SET value = '0' WHERE key = 'indexed_seq'"
"""Has the next start read all examples again, from the events."""

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
_EXAMPLES = (  # a kind of damage, and SQL of the first
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


_FILES = """SELECT min(key), coalesce(body ->> '$.teacher', body ->> '$.reference', '') AS file FROM events
             WHERE kind IN ('example.accepted', 'anchor.frozen', 'example.encoded') AND file <> ''
             GROUP BY 2 ORDER BY min(seq)"""
_NEWEST = """SELECT kind, version, body FROM events WHERE kind = 'quality.measured' AND body ->> '$.why' = 'baseline'
    ORDER BY seq DESC LIMIT 1"""
SECONDS = 60.0
JOURNAL = "journal.db"
"""of a daemon, in its state directory"""


def derived_damage(path: str | Path) -> JournalError | None:
    """The first damage of derived objects, with the way out, or None. Takes seconds for a million events.

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
    """Journals of older schemas lack some index tables."""
    return db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone() is not None


def _of_pages(path: str | Path, found: str) -> JournalError:
    """An error in SQLite's own words, which name an index whose rows do not fit its table."""
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


def reference_damage(path: str | Path) -> JournalError | None:
    """The damage of the newest baseline's references, if this is the journal that a daemon works on; None without one.
    Blocking. Raises JournalError for a journal that cannot be read."""
    digest = _baseline_digest(path)
    while digest:
        if not (problem := blobs.problem(Path(path).resolve().parent / blobs.NAME, digest)):
            return None
        before, digest = digest, _baseline_digest(path)
        if digest == before:  # else a new baseline came meanwhile, and the daemon removed this one's
            return JournalError(
                f"what the quality guard compares with is not there, {problem}",
                "put the file back, or measure the baseline again: apollod ctl quality baseline",
            )
    return None


_BACK = "put the file back from a backup; without it no replay goes past the step that learned it"


def file_damage(path: str | Path) -> JournalError | None:
    """The first damage of a file that examples or anchors are learned from (a teacher, rollouts, a reference), or that
    an update wrote, if this is the journal that a daemon works on; None without one. Blocking. Raises JournalError for
    a journal that cannot be read."""
    if not _is_own(path):
        return None
    directory = Path(path).resolve().parent / blobs.NAME
    for example, digest in journal_reader.query(path, _FILES, maxsize, SECONDS).rows:
        if problem := blobs.problem(directory, digest):
            return JournalError(f"what {example} is learned from is not there, {problem}", _BACK)
    updates = Path(path).resolve().parent / UPDATES
    for file, step in journal_reader.query(path, update_files.KEPT.format(but=-1), maxsize, SECONDS).rows:
        if problem := update_files.problem(updates, str(file)):
            return JournalError(f"what the update of step {step} wrote is not there, {problem}", _BACK)
    return None


def _baseline_digest(path: str | Path) -> str:
    """The digest of the newest baseline's references; empty if there is no baseline, or this is a copy."""
    newest = [decode_event(*row) for row in journal_reader.query(path, _NEWEST, seconds=SECONDS).rows]
    return next((e.references for e in newest if isinstance(e, QualityMeasured) and _is_own(path)), "")


def _is_own(path: str | Path) -> bool:
    """True if this is the journal that a daemon works on, not a copy."""
    started = [decode_event(*row) for row in journal_reader.query(path, blobs.STARTED, seconds=SECONDS).rows]
    own = [e for e in started if isinstance(e, DaemonStarted) and e.state_dir]
    return bool(own) and Path(path).resolve() == Path(own[0].state_dir, JOURNAL).resolve()
