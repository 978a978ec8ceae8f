"""The table of database readers. To add one, write a file beside this one and a line in it."""

from apollod.curation.databases import cursor, goose_database, hermes, openclaw, opencode, webui_feedback
from apollod.curation.databases.database_reader import DatabaseReader, Queries, Schema

DATABASES: tuple[DatabaseReader, ...] = (
    openclaw.READER, hermes.READER, opencode.READER, webui_feedback.READER, goose_database.READER, cursor.READER,
)  # fmt: skip


def database_names() -> tuple[str, ...]:
    """The allowed `format` names of a source."""
    return tuple(reader.name for reader in DATABASES)


def recognise(schema: Schema, format: str = "auto") -> tuple[DatabaseReader, Queries] | None:
    """The reader for a database with these tables, and its queries; None if no reader knows it."""
    for reader in DATABASES:
        if format in ("auto", reader.name) and (queries := reader.queries(schema)) is not None:
            return reader, queries
    return None
