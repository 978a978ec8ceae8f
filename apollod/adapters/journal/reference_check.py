"""Verifies that the references of the quality guard are there, as the journal names them.

Only the baseline in force needs its file: those of earlier ones are removed. So of a copy of a journal, or of an
archive, nothing is asked: the daemon may have another baseline by now.
"""

from pathlib import Path

from apollod.adapters.journal import blobs, journal_reader
from apollod.core.events import DaemonStarted, QualityMeasured
from apollod.errors import JournalError
from apollod.wire.event_codec import decode_event

_NEWEST = """SELECT kind, version, body FROM events WHERE kind = 'quality.measured' AND body ->> '$.why' = 'baseline'
    ORDER BY seq DESC LIMIT 1"""
_STARTED = "SELECT kind, version, body FROM events WHERE kind = 'daemon.started' ORDER BY seq DESC LIMIT 1"
SECONDS = 60.0
JOURNAL = "journal.db"
"""of a daemon, in its state directory"""


def damage(path: str | Path) -> JournalError | None:
    """What is wrong with the references of the newest baseline, if this is the journal that a daemon works on; None:
    nothing. Blocking. Raises JournalError for a journal that cannot be read."""
    digest = _digest(path)
    while digest:
        if not (problem := blobs.problem(Path(path).resolve().parent / blobs.NAME, digest)):
            return None
        before, digest = digest, _digest(path)
        if digest == before:  # else a new baseline came meanwhile, and the daemon removed this one's
            return JournalError(
                f"what the quality guard compares with is not there, {problem}",
                "put the file back, or measure the baseline again: apollod ctl quality baseline",
            )
    return None


def _digest(path: str | Path) -> str:
    """Empty where there is no baseline, or this is a copy."""
    started, newest = (
        [decode_event(*row) for row in journal_reader.query(path, sql, seconds=SECONDS).rows]
        for sql in (_STARTED, _NEWEST)
    )
    own = [e for e in started if isinstance(e, DaemonStarted) and e.state_dir]
    if not own or Path(path).resolve() != Path(own[0].state_dir, JOURNAL).resolve():
        return ""
    return next((e.references for e in newest if isinstance(e, QualityMeasured)), "")
