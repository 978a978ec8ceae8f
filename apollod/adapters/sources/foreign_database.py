"""Reads another program's SQLite database while that program writes.

Rule: opened read-only, never `immutable`; one short read transaction at a time, in which rows are only fetched; a
writer waits no longer than that. Blocking: the caller uses a worker thread.
"""

import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, NamedTuple
from urllib.parse import quote

from apollod.adapters.sources.identity import open_regular
from apollod.curation.assembly import CONTEXT_BYTES
from apollod.curation.formats.database_reader import Key, Queries
from apollod.curation.formats.session_rows import RawRow, RawSession, SessionCursor
from apollod.errors import SourceLocked, SourceRefused

MAGIC = b"SQLite format 3\x00"
SUFFIXES = (".db", ".sqlite", ".sqlite3", ".vscdb")
BUSY_S = 0.2  # a locked database is tried again with the next look, so that others need not wait
QUERY_S = 10.0  # a longer query is stopped: the file may be hostile, or too large to be read this way
FETCH_BYTES = 4 << 20  # of a session in one transaction, overshot by one record
FACT_BYTES = 1 << 20


class ForeignSession(NamedTuple):
    """A session as `Queries.sessions` names it."""

    id: str
    birth: str
    stamp: str


class ForeignDatabase:
    """An open database; valid inside `open_database`."""

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self._connection = connection
        self._path = path
        self._end = 0.0
        connection.set_progress_handler(lambda: int(time.monotonic() > self._end), 100_000)

    def version(self) -> int:
        """A number that changes with the tables."""
        return int(self._rows("PRAGMA schema_version", {})[0][0])

    def schema(self) -> dict[str, frozenset[str]]:
        """The columns of all tables."""
        tables = self._rows("SELECT name FROM sqlite_master WHERE type = 'table'", {})
        names = [bytes(name).decode("utf-8", "replace") for (name,) in tables]
        columns = {
            name: self._rows("SELECT name FROM pragma_table_info(:table)", {"table": name})
            for name in names
            if not name.startswith("sqlite_")
        }
        return {
            table: frozenset(bytes(name).decode("utf-8", "replace") for (name,) in found)
            for table, found in columns.items()
        }

    def sessions(self, queries: Queries) -> list[ForeignSession]:
        """All sessions, in the order of reading."""
        return [ForeignSession(*(_as_text(value) for value in row)) for row in self._rows(queries.sessions, {})]

    def read(self, queries: Queries, session: str, cursor: SessionCursor, record_bytes: int) -> RawSession:
        """Return a session, from some context before the position on; all of it is of one moment."""
        given: dict[str, Any] = {"session": session, "after": None, "until": None, "most": record_bytes}
        with self._transaction():
            facts = self._facts(queries, given)
            first = 1
            if cursor.given is not None:
                given["after"] = given["until"] = self._context(queries, {**given, "until": cursor.given})
                if given["after"] is not None:
                    first += self._rows(queries.counted, given)[0][0]
            records, cut = self._records(queries, given, cursor.given)
        return RawSession(facts, records, first, cut)

    def _facts(self, queries: Queries, given: Mapping[str, Any]) -> RawRow:
        if not queries.facts:
            return {}
        found = self._execute(queries.facts, {**given, "most": FACT_BYTES})
        with closing(found):
            row = found.fetchone()
            return _as_row(found, row) if row is not None else {}

    def _context(self, queries: Queries, given: Mapping[str, Any]) -> Key | None:
        """Key after which reading begins; None: at the beginning of the session."""
        size = 0
        with closing(self._execute(queries.before, given)) as found:
            for key, characters in found:
                if size > CONTEXT_BYTES:
                    return _as_key(key)
                size += characters or 0
        return None

    def _records(
        self, queries: Queries, given: Mapping[str, Any], until: Key | None
    ) -> tuple[list[tuple[Key, list[RawRow]]], bool]:
        """(records, True if there are more). Records before `until` are context and do not count for the size."""
        records: list[tuple[Key, list[RawRow]]] = []
        size = 0
        with closing(self._execute(queries.records, given)) as found:
            for values in found:
                row = _as_row(found, values)
                key = _as_key(row["key"])
                if not records or records[-1][0] != key:
                    if size > FETCH_BYTES:
                        return records, True
                    records.append((key, []))
                records[-1][1].append(row)
                if until is None or type(key) is not type(until) or key > until:  # type: ignore[operator]
                    size += sum(len(value) for value in values if isinstance(value, bytes))
        return records, False

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with _told(self._path):
            self._connection.execute("BEGIN")
        try:
            yield
        finally:
            self._connection.rollback()

    def _rows(self, query: str, given: Mapping[str, Any]) -> list[Any]:
        with closing(self._execute(query, given)) as found, _told(self._path):
            return found.fetchall()

    def _execute(self, query: str, given: Mapping[str, Any]) -> sqlite3.Cursor:
        self._end = time.monotonic() + QUERY_S
        return self._connection.execute(query, given)


@contextmanager
def open_database(path: str) -> Iterator[ForeignDatabase]:
    """Open a database that another program writes. Raises SourceRefused, also inside, if it cannot be read now."""
    with _told(path):
        connection = sqlite3.connect(
            f"file:{quote(os.fsencode(path))}?mode=ro", uri=True, timeout=BUSY_S, isolation_level=None
        )
        with closing(connection):
            connection.text_factory = bytes
            connection.execute("PRAGMA query_only = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
            yield ForeignDatabase(connection, path)


def is_database(path: str) -> bool:
    """True if a regular file begins like a database. Raises OSError where it may not be read."""
    file = open_regular(path)
    if file is None:
        return False
    with file:
        return file.read(len(MAGIC)) == MAGIC


@contextmanager
def _told(path: str) -> Iterator[None]:
    """Translate SQLite's errors into SourceRefused with a hint."""
    try:
        yield
    except sqlite3.Error as error:
        code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise SourceLocked(
                f"the database {path} cannot be read: another program keeps it locked",
                "end the program that hangs in it; it is tried again with every look",
            ) from error
        if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            problem = f"it cannot be opened ({error})"
            hint = "the daemon has to read the file and, where it is in WAL mode, to write beside it (-shm)"
        elif code == sqlite3.SQLITE_INTERRUPT:
            problem, hint = (
                f"a query took longer than {QUERY_S:g} s",
                "remove old sessions in the program that writes it",
            )
        elif code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            problem, hint = f"it is damaged, or encrypted ({error})", "look at it with `PRAGMA integrity_check`"
        elif code in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_SCHEMA):
            problem, hint = f"its tables are not those of this format ({error})", "it is tried again with every look"
        else:
            problem, hint = str(error), "look at the file system and at the program that writes it"
        raise SourceRefused(f"the database {path} cannot be read: {problem}", hint) from error


def _as_row(cursor: sqlite3.Cursor, values: Any) -> RawRow:
    return {str(column[0]): value for column, value in zip(cursor.description, values, strict=True)}


def _as_key(value: Any) -> Key:
    if isinstance(value, int):
        return value
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _as_text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else "" if value is None else str(value)
