"""Recent answers of the engine by response id: an SQLite file beside the journal, bounded in bytes and in age.

A cache, not a record: what is needed for learning is copied into the journal, and whoever finds this file damaged or of
another version begins a new one. What is deleted is overwritten (`secure_delete`). Texts and tokens are redacted before
they come here.
"""

import os
import sqlite3
from array import array
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

SECOND_NS = 1_000_000_000
FORMAT = 1  # PRAGMA user_version; a file of another one is dropped
BUSY_MS = 2000

_TABLE = """
    CREATE TABLE IF NOT EXISTS answers (
        response TEXT, choice INTEGER, at_ns INTEGER, version TEXT, finish TEXT, final INTEGER, prompt_ids BLOB,
        answer_ids BLOB, prompt TEXT, answer TEXT, redacted INTEGER, bytes INTEGER, PRIMARY KEY (response, choice)
    );
    CREATE INDEX IF NOT EXISTS answers_by_age ON answers (at_ns, bytes);
"""
_PUT = "INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_OLDEST = "rowid = (SELECT rowid FROM answers ORDER BY at_ns LIMIT 1)"
_TAKE = """
    SELECT response, choice, at_ns, version, finish, final, prompt_ids, answer_ids, prompt, answer, redacted
    FROM answers WHERE response = ? AND at_ns >= ? ORDER BY choice
"""


class Answer(NamedTuple):
    """One answer (a choice of a response), with what it was an answer to. Token ids are uint32."""

    response: str
    choice: int
    at_ns: int
    version: str
    """of the weights that sampled it, `12` or `12-14`; empty: not known"""
    finish: str
    """stop, length, tool_calls ..."""
    final: int
    """the token with which it ended by itself, which is the last of `answer_ids`; -1: it was cut off, or ended by a
    text"""
    prompt_ids: "array[int]"
    answer_ids: "array[int]"
    prompt: str
    answer: str
    """what a client was told: without the tokens that end turns and the like"""
    redacted: bool = False
    """a secret was replaced in the tokens, too"""

    @property
    def bytes(self) -> int:
        """What it takes in the file, roughly."""
        return 4 * (len(self.prompt_ids) + len(self.answer_ids)) + len(self.prompt) + len(self.answer) + 200


class AnswerWriter:
    """The one that writes. All methods belong to one thread and raise sqlite3.Error or OSError."""

    def __init__(self, path: Path, max_bytes: int, keep_s: float) -> None:
        self._max_bytes = max_bytes
        self._keep_ns = int(keep_s * SECOND_NS)
        self._db = _opened(path)
        ((self._size,),) = self._db.execute("SELECT coalesce(sum(bytes), 0) FROM answers")

    def put(self, answers: Iterable[Answer], now_ns: int) -> None:
        """Keep these, and drop what is too old or too much, the oldest first."""
        with self._db:
            for one in answers:
                self._drop("response = ? AND choice = ?", one.response, one.choice)
                row = (*one[:6], one.prompt_ids.tobytes(), one.answer_ids.tobytes(), *one[8:], one.bytes)
                self._db.execute(_PUT, row)
                self._size += one.bytes
            self._drop("at_ns < ?", now_ns - self._keep_ns)
            while self._size > self._max_bytes and self._drop(_OLDEST):
                pass

    def _drop(self, which: str, *values: object) -> int:
        """How many were dropped."""
        gone = self._db.execute(f"DELETE FROM answers WHERE {which} RETURNING bytes", values).fetchall()
        self._size -= sum(size for (size,) in gone)
        return len(gone)

    def close(self) -> None:
        self._db.close()


def find(path: Path, response: str, since_ns: int = 0) -> list[Answer]:
    """The choices of a response, if they are still kept; none where there is no store that can be read. Blocking."""
    return [_answer(row) for row in _rows(path, _TAKE, (response, since_ns), BUSY_MS / 1000)]


def count(path: Path) -> int:
    """How many answers are kept. Blocking, for well below a millisecond."""
    return sum(found for (found,) in _rows(path, "SELECT count(*) FROM answers", (), timeout_s=0.05))


def remove(path: Path) -> None:
    """Forget everything: nobody is to keep answers any more."""
    for file in _files(path):
        file.unlink(missing_ok=True)


def _rows(path: Path, sql: str, parameters: tuple[Any, ...], timeout_s: float) -> list[tuple[Any, ...]]:
    """What cannot be read is empty: it is a cache."""
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


def _opened(path: Path) -> sqlite3.Connection:
    """A connection that writes; a file that is none of ours makes room for a new one."""
    try:
        return _connect(path)
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):  # the disk, a lock: another file would not help
            raise
        remove(path)
        return _connect(path)


def _connect(path: Path) -> sqlite3.Connection:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # its log files take over this mode
    db = sqlite3.connect(path, timeout=BUSY_MS / 1000, check_same_thread=False)
    try:
        ((found,),) = db.execute("PRAGMA user_version")
        if found not in (0, FORMAT):
            raise sqlite3.DatabaseError(f"format {found}")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")  # a loss of power may take the last ones
        db.execute("PRAGMA secure_delete = ON")
        db.executescript(_TABLE)
        db.execute(f"PRAGMA user_version = {FORMAT}")
        db.commit()
    except BaseException:
        db.close()
        raise
    return db


def _files(path: Path) -> list[Path]:
    return [path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")]
