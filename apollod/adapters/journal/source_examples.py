"""The examples of one source, from the journal file."""

from pathlib import Path

from apollod.adapters.journal import journal_reader

SECONDS = 60.0
ROWS_MAX = (1 << 31) - 2


def source_examples(journal: Path, source: str) -> list[str]:
    """Ids of all examples that were accepted from a source, given by its identity or by its path, in order. Blocking.
    Raises JournalError."""
    named = journal_reader.literal(source)
    sql = f"""
        SELECT key FROM events WHERE kind = 'example.accepted' AND body ->> '$.source' IN (
            SELECT {named} UNION SELECT source FROM sources WHERE path = {named}
        ) ORDER BY seq
    """
    return [id_ for (id_,) in journal_reader.query(journal, sql, ROWS_MAX, SECONDS).rows]
