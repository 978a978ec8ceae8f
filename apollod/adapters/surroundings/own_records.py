"""Reads a user's own conversations from the journal: accepted from logs, captures, files and requests, and not made by
apollod itself. Blocking."""

from pathlib import Path

import msgspec

from apollod.adapters.journal.journal_reader import query
from apollod.core.intake.events import Removed
from apollod.curation.surrounding_texts import Recorded

NEWEST = 100
BYTES_MAX = 64 << 20
SECONDS = 10.0
_SQL = f"""SELECT body ->> '$.record', coalesce(body ->> '$.removed', '[]') FROM events
    WHERE kind = 'example.accepted'
        AND body ->> '$.source' NOT LIKE 'dream:%' AND body ->> '$.source' NOT LIKE 'lesson:%'
    ORDER BY seq DESC LIMIT {NEWEST}"""


def own_records(journal: Path) -> list[Recorded]:
    """The newest ones, in the order of acceptance. Raises JournalError."""
    rows = query(journal, _SQL, NEWEST, SECONDS, BYTES_MAX).rows
    return [
        Recorded(record.encode(), msgspec.json.decode(removed, type=tuple[Removed, ...]))
        for record, removed in reversed(rows)
    ]
