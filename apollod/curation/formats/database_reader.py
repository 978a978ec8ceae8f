"""Interface to an agent's database: a `DatabaseReader` gives the queries and interprets the rows.

A database is not a log: rows are changed and deleted, sessions grow at the same time. So each session is a source of
its own, and each query reads its present state from some key on. `session_rows.py` makes moments of that.

The laws, which tests/property/test_database_readers.py checks for every reader of the table:

1. `hear` never raises, whatever the values are, and gives at most one answer per record.
2. Keys of a session grow; records come in the order of their keys.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from apollod.curation.conversation import Session
from apollod.curation.formats.session_reader import Heard

Key = int | str
Value = str | bytes | int | float | None
Row = Mapping[str, Value]
"""Text is `str` when a reader gets it, redacted; a blob stays `bytes`."""
Schema = Mapping[str, frozenset[str]]
"""The columns of each table"""


class Queries(NamedTuple):
    """The queries for a database with this schema. `capped` wraps all text columns that may be long."""

    sessions: str
    """() -> (id, birth, stamp) of each session, in the order in which they are to be read. `birth` tells it from
    another one of the same id; a changed `stamp` means there may be new records. Cheap: it runs after every change"""
    facts: str
    """(:session, :most) -> at most one row of facts about the session; "": there are none"""
    records: str
    """(:session, :after, :most) -> rows behind the key `:after` (NULL: all) in order. Column `key`; rows with the same
    one are one record. Column `size`: characters; text longer than `:most` is NULL and still counted in `size`"""
    before: str
    """(:session, :until) -> (key, characters) of the records up to a key, backwards"""
    counted: str
    """(:session, :until) -> number of records up to a key"""


class DatabaseReader(Protocol):
    """One agent's database."""

    @property
    def name(self) -> str:
        """Name in configuration and journal; never changed once released."""

    @property
    def keys_return(self) -> bool:
        """True if a key may be given again to another record, because the agent rewrites a session."""

    def queries(self, schema: Schema) -> Queries | None:
        """The queries for a database with these tables; None if it belongs to another agent. Optional columns are only
        queried where they exist."""

    def session(self, facts: Row) -> Session:
        """The facts about a session before its first record. Columns may be missing, or hold anything."""

    def hear(self, facts: Row, records: Sequence[Sequence[Row]]) -> Sequence[Heard]:
        """The content of each record, in order. Fewer results than records: the rest is still being written."""


def capped(columns: Iterable[str], of: str, prefix: str = "") -> str:
    """SELECT terms for text columns of a table (by its alias) that return no text longer than `:most`."""
    return ", ".join(f'iif({_length(of, c)} > :most, NULL, {of}."{c}") AS "{prefix}{c}"' for c in columns)


def size_of(columns: Iterable[str], of: str) -> str:
    """An SQL expression for the total bytes of these columns."""
    return " + ".join(f"coalesce({_length(of, c)}, 0)" for c in columns) or "0"


def _length(of: str, column: str) -> str:
    """An SQL expression for the bytes of a column: text length ends at the first NUL, which some agents write."""
    return f'length(CAST({of}."{column}" AS BLOB))'


def listed(columns: Iterable[str], of: str) -> str:
    """SELECT terms for short columns."""
    return ", ".join(f'{of}."{c}" AS "{c}"' for c in columns)


def grouped(table: str, last: str, born: str, joined: str, stamp: str = "") -> str:
    """A query for `Queries.sessions` over the rows of a table by `session_id`. `last`: an aggregate that grows with
    them; `born`: the birth; `joined`: the table of sessions, aliased s, with its condition; `stamp`: more of the
    stamp."""
    of_each = f"SELECT session_id, count(*) AS n, {last} AS last FROM {table} GROUP BY session_id"
    return f"SELECT g.session_id, {born}, g.n || ' ' || g.last{stamp} FROM ({of_each}) g" + (
        f" LEFT JOIN {joined}" if joined else ""
    )


def of_rows(
    table: str, key: str, texts: Iterable[str], short: Iterable[str] = (), session: str = "session_id"
) -> tuple[str, str, str]:
    """`Queries.records`, `before` and `counted` where each record is one row of a table. `texts`, `short`: its columns
    that may be long, and others."""
    size, there = size_of(texts, "m"), f"FROM {table} m WHERE m.{session} = :session"
    columns = ", ".join(filter(None, (listed(short, "m"), capped(texts, "m"))))
    return (
        f"SELECT m.{key} AS key, {size} AS size, {columns} {there} AND (:after IS NULL OR m.{key} > :after)"
        f" ORDER BY m.{key}",
        f"SELECT m.{key}, {size} {there} AND m.{key} <= :until ORDER BY m.{key} DESC",
        f"SELECT count(*) {there} AND m.{key} <= :until",
    )
