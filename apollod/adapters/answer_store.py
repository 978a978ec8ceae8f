"""Recent answers of the engine, token by token, by response id: an SQLite file beside the journal, bounded in bytes and
in age. The engine's API process adds to it, the supervisor reads it and removes expired answers; the two share nothing
else.

A cache, not a record: answers needed for learning are copied into the journal, and a damaged file or one of another
version is replaced by a new one. Texts and tokens are redacted before they come here.

The bounds hold for the files, at every moment. Deleted parts are overwritten (`secure_delete`), free pages are given
back with each transaction (`auto_vacuum`), and its rollback journal is empty after it (`journal_mode = TRUNCATE`).
Within a transaction that journal holds old pages, so each one deletes or adds only as much as leaves room for them.
"""

import os
import sqlite3
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")
SECOND_NS = 1_000_000_000
FORMAT = 2  # PRAGMA user_version; a file of another one is dropped
BUSY_MS = 2000
PAGE = 1024  # small, so that the smallest `max_bytes` holds some answers
_FIXED = 24 * PAGE  # the tables themselves, and what each transaction journals besides what it deletes
_JOURNALED = 3  # pages for each deleted page: itself, the file's last page, which takes its place, and its neighbour

_TABLE = """
    CREATE TABLE IF NOT EXISTS answers (
        response TEXT, choice INTEGER, at_ns INTEGER, version TEXT, finish TEXT, final INTEGER, prompt_ids BLOB,
        answer_ids BLOB, prompt TEXT, answer TEXT, redacted INTEGER, bytes INTEGER, PRIMARY KEY (response, choice)
    );
    CREATE INDEX IF NOT EXISTS answers_by_age ON answers (at_ns, bytes);
"""
_PUT = "INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_SIZES = "SELECT rowid, bytes FROM answers"
_TAKE = """
    SELECT response, choice, at_ns, version, finish, final, prompt_ids, answer_ids, prompt, answer, redacted
    FROM answers WHERE response = ? AND at_ns >= ? ORDER BY choice
"""


class Answer(NamedTuple):
    """One answer (a choice of a response), with its prompt. Token ids are uint32."""

    response: str
    choice: int
    at_ns: int
    version: str
    """version of the weights that sampled it, `12` or `12-14`; empty: unknown"""
    finish: str
    """stop, length, tool_calls ..."""
    final: int
    """token with which the model ended the answer, the last of `answer_ids`; -1: it was cut off, or ended by a stop
    text"""
    prompt_ids: "array[int]"
    answer_ids: "array[int]"
    prompt: str
    answer: str
    """text that the client received: without tokens that end turns and the like"""
    redacted: bool = False
    """a secret was replaced in the tokens, too"""

    @property
    def bytes(self) -> int:
        """Upper bound of the space that the answer takes in the file."""
        texts = len(self.prompt.encode()) + len(self.answer.encode()) + len(self.response.encode())
        return 4 * (len(self.prompt_ids) + len(self.answer_ids)) + texts + 200 + 2 * PAGE


class AnswerWriter:
    """Writes answers. All methods belong to one thread and raise sqlite3.Error or OSError."""

    def __init__(self, path: Path, max_bytes: int, keep_s: float) -> None:
        self._keep_ns = int(keep_s * SECOND_NS)
        self._at_once = max_bytes // 16
        self._limit = max_bytes - _JOURNALED * self._at_once - _FIXED
        self._db = _opened(path)

    def put(self, answers: Iterable[Answer], now_ns: int) -> None:
        """Keep these, and drop answers that are too old or exceed the limit, the oldest first. An answer that would
        fill a sixteenth of the room is not kept."""
        _expire(self._db, now_ns - self._keep_ns, self._at_once)
        small = [one for one in answers if one.bytes <= self._at_once]
        last = {(one.response, one.choice): one for one in small}
        for some in _portions(last.values(), lambda one: one.bytes, self._at_once):
            for one in some:
                same = self._db.execute(f"{_SIZES} WHERE response = ? AND choice = ?", (one.response, one.choice))
                _drop(self._db, same.fetchall(), self._at_once)
            self._make_room(sum(one.bytes for one in some))
            with self._db:
                for one in some:
                    row = (*one[:6], one.prompt_ids.tobytes(), one.answer_ids.tobytes(), *one[8:], one.bytes)
                    self._db.execute(_PUT, row)
        self._make_room(0)

    def _make_room(self, needed: int) -> None:
        while (excess := _size(self._db) + needed - self._limit) > 0:
            oldest: list[tuple[int, int]] = []
            with closing(self._db.execute(f"{_SIZES} ORDER BY at_ns")) as rows:
                while excess > 0 and (row := rows.fetchone()) is not None:
                    oldest.append(row)
                    excess -= row[1]
            if not oldest:
                break
            _drop(self._db, oldest, self._at_once)

    def close(self) -> None:
        self._db.close()


def tidy(path: Path, max_bytes: int, keep_s: float, now_ns: int) -> int | None:
    """Drop expired answers, and a useless file. Return the time when the next answer expires, None if none is kept.
    Blocking."""
    if not path.exists():
        return None
    try:
        with closing(_connect(path)) as db:
            keep_ns = int(keep_s * SECOND_NS)
            _expire(db, now_ns - keep_ns, max_bytes // 16)
            ((oldest,),) = db.execute("SELECT min(at_ns) FROM answers")
            return None if oldest is None else oldest + keep_ns
    except OSError:  # missing or not permitted: the engine, which writes it, reports that
        return None
    except sqlite3.Error as error:
        if _useless(error):
            remove(path)
        return None


def find(path: Path, response: str, since_ns: int = 0) -> list[Answer]:
    """The choices of a response, if they are still kept; empty without a readable store. Blocking."""
    return [_answer(row) for row in _rows(path, _TAKE, (response, since_ns), BUSY_MS / 1000)]


def count(path: Path) -> int:
    """Number of kept answers. Blocking, for less than a millisecond unless an answer is being written."""
    return sum(found for (found,) in _rows(path, "SELECT count(*) FROM answers", (), timeout_s=0.25))


def remove(path: Path) -> None:
    """Delete the store, when answers are not to be kept any more."""
    for end in ("", "-journal", "-wal", "-shm"):  # the last two belong to format 1
        path.with_name(f"{path.name}{end}").unlink(missing_ok=True)


def _rows(path: Path, sql: str, parameters: tuple[Any, ...], timeout_s: float) -> list[tuple[Any, ...]]:
    """Rows of a query; empty where the file cannot be read, since it is only a cache."""
    if not path.exists():
        return []
    try:
        with closing(sqlite3.connect(path, timeout=timeout_s)) as db:
            db.execute("PRAGMA query_only = ON")
            ((found,),) = db.execute("PRAGMA user_version")
            return list(db.execute(sql, parameters)) if found == FORMAT else []
    except sqlite3.Error:
        return []


def _answer(row: tuple[Any, ...]) -> Answer:
    response, choice, at_ns, version, finish, final, prompt_ids, answer_ids, prompt, answer, redacted = row
    return Answer(
        response, choice, at_ns, version, finish, final, array("I", prompt_ids), array("I", answer_ids), prompt,
        answer, bool(redacted),
    )  # fmt: skip


def _expire(db: sqlite3.Connection, before_ns: int, at_once: int) -> None:
    _drop(db, db.execute(f"{_SIZES} WHERE at_ns < ?", (before_ns,)).fetchall(), at_once)


def _drop(db: sqlite3.Connection, rows: Sequence[tuple[int, int]], at_once: int) -> None:
    """Delete rows (id, bytes), in transactions of `at_once` bytes at most."""
    for some in _portions(rows, lambda row: row[1], at_once):
        with db:
            db.executemany("DELETE FROM answers WHERE rowid = ?", [(rowid,) for rowid, _ in some])


def _portions(things: Iterable[T], size: Callable[[T], int], at_most: int) -> Iterator[list[T]]:
    """Split in order into portions, each of one element or of at most `at_most` bytes."""
    portion: list[T] = []
    room = at_most
    for one in things:
        if portion and size(one) > room:
            yield portion
            portion, room = [], at_most
        portion.append(one)
        room -= size(one)
    if portion:
        yield portion


def _size(db: sqlite3.Connection) -> int:
    """Size of the database file between two transactions, in bytes."""
    ((pages,),) = db.execute("PRAGMA page_count")
    return int(pages) * PAGE


def _opened(path: Path) -> sqlite3.Connection:
    """A connection that writes; a file of another kind is replaced by a new one."""
    try:
        return _connect(path)
    except sqlite3.DatabaseError as error:
        if not _useless(error):
            raise
        remove(path)
        return _connect(path)


def _useless(error: sqlite3.Error) -> bool:
    """True if a new file would help: not for errors of the disk or a lock."""
    return isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError)


def _connect(path: Path) -> sqlite3.Connection:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # its journal takes over this mode
    db = sqlite3.connect(path, timeout=BUSY_MS / 1000, check_same_thread=False)
    try:
        ((found,),) = db.execute("PRAGMA user_version")
        if found not in (0, FORMAT):
            raise sqlite3.DatabaseError(f"format {found}")
        db.execute(f"PRAGMA page_size = {PAGE}")
        db.execute("PRAGMA auto_vacuum = FULL")
        db.execute("PRAGMA journal_mode = TRUNCATE")
        db.execute("PRAGMA synchronous = NORMAL")  # a loss of power may take the last ones
        db.execute("PRAGMA secure_delete = ON")
        if not found:
            db.executescript(f"{_TABLE} PRAGMA user_version = {FORMAT};")
    except BaseException:
        db.close()
        raise
    return db
