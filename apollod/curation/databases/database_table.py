"""The table of database readers. To add one, write a file beside this one and a line in it."""

from apollod.curation.databases import cursor, hermes, openclaw, opencode
from apollod.curation.databases.database_reader import DatabaseReader, Queries, Schema
from apollod.curation.formats import open_webui
from apollod.curation.formats.agents import goose

DATABASES: tuple[DatabaseReader, ...] = (
    openclaw.READER, hermes.READER, opencode.READER, open_webui.DATABASE, goose.DATABASE, cursor.READER,
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
