"""The seam between an agent's database and what it means: a `DatabaseReader` says what to ask and what rows say.

A database is not a log: rows are changed and deleted, sessions grow at the same time. So each session is a source of
its own, and what is asked of it is always its present state from some key on. `session_rows.py` makes moments of that.

The laws, which tests/property/test_database_readers.py checks for every reader of the table:

1. `hear` never raises, whatever the values are, and gives no more answers than there are records.
2. Keys of a session grow; records come in the order of their keys.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, ParamSpec, Protocol

from apollod.curation.conversation import Entry, Session
from apollod.curation.formats.reader import ACCIDENTS, accident
from apollod.errors import RecordRefused

P = ParamSpec("P")
Key = int | str
Value = str | bytes | int | float | None
Row = Mapping[str, Value]
"""Text is `str` when a reader gets it, redacted; a blob stays `bytes`."""
Schema = Mapping[str, frozenset[str]]
"""The columns of each table"""


class Queries(NamedTuple):
    """The queries for a database with this schema. All text columns that may be long are asked for by `capped`."""

    sessions: str
    """() -> (id, birth, stamp) of each session, in the order in which they are to be read. `birth` tells it from
    another one of the same id; with another `stamp` it may have something new. Cheap: asked after every change"""
    facts: str
    """(:session, :most) -> at most one row of facts about the session; "" if there is nothing to ask"""
    records: str
    """(:session, :after, :most) -> rows behind the key `:after` (NULL: all) in order. Column `key`; rows with the same
    one are one record. Column `size`: characters, or more where nothing was returned of what is longer than `:most`"""
    before: str
    """(:session, :until) -> (key, characters) of the records up to a key, backwards"""
    counted: str
    """(:session, :until) -> number of records up to a key"""


class Heard(NamedTuple):
    """The content of a record."""

    entries: tuple[Entry, ...] = ()
    gone: bool = False
    """an answer that the user took back"""
    problem: str = ""
    """why it is no record"""


class DatabaseReader(Protocol):
    """One agent's database."""

    @property
    def name(self) -> str:
        """Its name in configuration and journal; once released it is never changed."""

    @property
    def keys_return(self) -> bool:
        """True if a key may be given again to another record, because the agent writes a session anew."""

    def queries(self, schema: Schema) -> Queries | None:
        """What to ask of a database with these tables; None: it is another agent's. Columns that some versions lack are
        not asked for where they are not."""

    def session(self, facts: Row) -> Session:
        """What is known of a session before its first record. Facts may be missing, or anything."""

    def hear(self, facts: Row, records: Sequence[Sequence[Row]]) -> Sequence[Heard]:
        """What the records say, in order. Fewer answers than records: the rest is still being written."""


def capped(columns: Iterable[str], of: str, prefix: str = "") -> str:
    """SELECT terms for text columns of a table (by its alias) that return no text longer than `:most`."""
    return ", ".join(f'iif({_length(of, c)} > :most, NULL, {of}."{c}") AS "{prefix}{c}"' for c in columns)


def size_of(columns: Iterable[str], of: str) -> str:
    """An SQL expression: bytes of these columns together."""
    return " + ".join(f"coalesce({_length(of, c)}, 0)" for c in columns) or "0"


def _length(of: str, column: str) -> str:
    """As bytes: the length of text ends at the first NUL, which some agents write."""
    return f'length(CAST({of}."{column}" AS BLOB))'


def listed(columns: Iterable[str], of: str) -> str:
    """SELECT terms for short columns."""
    return ", ".join(f'{of}."{c}" AS "{c}"' for c in columns)


def attempt(say: Callable[P, Iterable[Entry]], *args: P.args, **more: P.kwargs) -> Heard:
    """What a record says, or why it is none: a reader that stumbles costs one record."""
    try:
        return Heard(tuple(say(*args, **more)))
    except RecordRefused as error:
        return Heard(problem=error.line())
    except ACCIDENTS as error:
        return Heard(problem=accident(error))
