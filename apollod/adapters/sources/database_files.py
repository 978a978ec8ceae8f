"""Reads sessions in the databases of agents: each record exactly once, whatever changes in its database.

A session is a source like a file, with a position of its own: its identity combines its database (device, inode), its
format, its id and its start. The journal keeps where reading goes on; everything here is a cache. Blocking: the caller
uses a worker thread, one `read_batch` at a time.
"""

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

import msgspec

from apollod.adapters.sources.foreign_database import ForeignDatabase, ForeignSession, open_database
from apollod.adapters.sources.quarantine import Quarantine
from apollod.adapters.sources.record_stream import counted, lines_of
from apollod.adapters.sources.source_files import BATCH_LINES_MAX, Terms, printable
from apollod.core.facts.intake.state import Position
from apollod.core.inputs import Batch
from apollod.core.kernel.composing import composed
from apollod.curation.formats.database_reader import DatabaseReader, Queries
from apollod.curation.formats.session_rows import SessionCursor, read_session, written_anew
from apollod.curation.formats.table import recognise_database
from apollod.errors import SourceRefused

SETTLING_S = 2.0  # a file that changed this recently may change again without a new modification time


class _Recorded(SessionCursor, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A cursor as `source.consumed` has it."""

    format: str = ""


class _Stamp(NamedTuple):
    """Stat values of a database and its log that change when they do; empty if there is none."""

    files: tuple[tuple[int, ...], ...]
    newest: float
    """time of the last change, seconds"""


@dataclass
class _Database:
    """Cached state of one database."""

    file: tuple[int, ...] = ()
    """device and inode: another file at the same path is another database"""
    looked: tuple[tuple[int, ...], ...] = ()
    """stamp up to which all sessions were checked"""
    stamps: dict[str, str] = field(default_factory=dict)
    """stamp of each session when it was last read"""
    read: tuple[int, tuple[DatabaseReader, Queries] | None] = (-1, None)
    """version of its tables, and their reader with its queries"""
    waiting: dict[str, float] = field(default_factory=dict)
    """sessions with a record that waits, and the time since when none was added"""
    pending: deque[ForeignSession] = field(default_factory=deque)
    answered: tuple[str, str] = ("", "")
    """source and cursor of the last batch, if nothing follows it"""
    done: Callable[[], None] = lambda: None
    """called when that batch is recorded"""


class DatabaseFiles:
    """Reads databases. `format`: of all of them, or auto. `named`: each was named by the user, so an unreadable one is
    reported. `clock`: seconds since the epoch."""

    def __init__(
        self,
        quarantine: Quarantine,
        terms: Terms,
        format: str = "auto",
        named: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._quarantine = quarantine
        self._terms = terms
        self._format = format
        self._named = named
        self._clock = clock
        self._names: dict[str, str] = {}
        self._databases: dict[str, _Database] = {}

    def found(self, paths: list[str]) -> list[str]:
        """Set the list of existing databases and forget all others. Returns those that may have new records, as text
        that JSON can hold. Costs two stats each."""
        self._names = {printable(path): path for path in paths}
        self._databases = {name: self._databases.get(name, _Database()) for name in self._names}
        return [name for name, path in self._names.items() if self._may_have_news(self._databases[name], path)]

    def read_batch(self, path: str, known: Mapping[str, Position]) -> Batch | None:
        """Return the next records of some session of a database, or None when there are none now (also when it is
        gone).

        `known`: the newest position of every source in the journal; a repeated call without recording the batch returns
        the same one. Raises SourceRefused where the database cannot be read now, OSError where quarantine cannot be
        used: nothing is taken then.
        """
        database, file = self._databases.setdefault(path, _Database()), self._names.get(path, path)
        stamp = _stamp(file)
        if stamp is None:
            return None
        if database.file != stamp.files[0][:2]:
            database = self._databases[path] = _Database(stamp.files[0][:2])
        with open_database(file) as opened:
            version = opened.version()
            if database.read[0] != version:
                database.read = version, recognise_database(opened.schema(), self._format)
            read = database.read[1]
            if read is None:
                if self._named or database.stamps:
                    raise SourceRefused(
                        f"the database {path} has not the tables of an agent that this apollod knows",
                        "see docs/formats-databases.md; if the program is being updated, it is read again afterwards",
                    )
                database.looked = self._looked(stamp)
                return None
            reader, queries = read
            identify = self._identify(reader, stamp)
            looked = False
            while database.pending or not looked:
                if not database.pending:
                    self._look(database, stamp, opened.sessions(queries), identify, known)
                    looked = True
                    continue
                session = database.pending[0]
                source = identify(session)
                batch = self._read(path, database, opened, reader, queries, session, known.get(source), source)
                if batch is not None:
                    return batch
                database.pending.popleft()
        return None

    # --- which sessions ---------------------------------------------------------------------------------------------

    def _may_have_news(self, database: _Database, path: str) -> bool:
        stamp = _stamp(path)
        if stamp is None:
            return False
        return bool(database.pending) or database.looked != stamp.files or bool(self._settled(database))

    def _settled(self, database: _Database) -> list[str]:
        now = self._clock()
        return [session for session, since in database.waiting.items() if now - since >= self._terms.settle_s]

    def _looked(self, stamp: _Stamp) -> tuple[tuple[int, ...], ...]:
        """Stamp of a checked database, if it proves that nothing else was written."""
        return stamp.files if self._clock() - stamp.newest > SETTLING_S else ()

    def _look(
        self,
        database: _Database,
        stamp: _Stamp,
        sessions: list[ForeignSession],
        identify: Callable[[ForeignSession], str],
        known: Mapping[str, Position],
    ) -> None:
        """Queue the sessions that have new records, or that settled."""
        database.answered = "", ""
        settled = set(self._settled(database))
        for session in sessions:
            if session.id not in database.stamps and (position := known.get(identify(session))) is not None:
                cursor = _cursor(position)
                if cursor.stamp == session.stamp:
                    database.stamps[session.id] = session.stamp
                    if cursor.waits:
                        database.waiting[session.id] = self._clock()
                    continue
            if database.stamps.get(session.id) != session.stamp or session.id in settled:
                database.pending.append(session)
        gone = database.waiting.keys() - {session.id for session in sessions}
        for name in gone:
            del database.waiting[name]
        database.looked = self._looked(stamp)

    def _identify(self, reader: DatabaseReader, stamp: _Stamp) -> Callable[[ForeignSession], str]:
        device, inode = stamp.files[0][:2]

        def identity(session: ForeignSession) -> str:
            whole = f"{device} {inode} {reader.name} {session.birth} {session.id}"
            return sha256(whole.encode()).hexdigest()[:24]

        return identity

    # --- one session ------------------------------------------------------------------------------------------------

    def _read(
        self,
        path: str,
        database: _Database,
        opened: ForeignDatabase,
        reader: DatabaseReader,
        queries: Queries,
        session: ForeignSession,
        position: Position | None,
        source: str,
    ) -> Batch | None:
        """Next batch of a session; None if it has nothing new."""
        new, replaces = position is None, ""
        position = position or Position(source, 0, 0)
        if database.answered == (position.source, position.cursor):
            database.done()
            return None
        cursor = _cursor(position)
        raw = opened.read(queries, session.id, cursor, self._terms.record_bytes)
        if written_anew(reader, raw, cursor):
            position, replaces, new, cursor = position.anew(), position.source, True, SessionCursor()
            raw = opened.read(queries, session.id, cursor, self._terms.record_bytes)
        read = read_session(reader, raw, cursor, self._terms.record_bytes, BATCH_LINES_MAX, settle=False)
        news = _unstamped(read.cursor) != _unstamped(cursor)
        since = self._clock() if news else database.waiting.get(session.id, self._clock())
        if not news and cursor.waits and self._clock() - since >= self._terms.settle_s:
            read = read_session(reader, raw, cursor, self._terms.record_bytes, BATCH_LINES_MAX, settle=True)
            news = _unstamped(read.cursor) != _unstamped(cursor)
        counts = Counter(read.counts)
        lines = lines_of(read.items, self._quarantine, self._terms.rules, counts)
        more = read.more and news
        stamp = cursor.stamp if more else session.stamp
        recorded = _recorded(reader, msgspec.structs.replace(read.cursor, stamp=stamp))

        def done() -> None:
            database.stamps[session.id] = session.stamp
            if read.cursor.waits:
                database.waiting[session.id] = since
            else:
                database.waiting.pop(session.id, None)

        if not lines and not counts and not new and not news:
            done()
            return None
        if not more:
            database.answered, database.done = (position.source, recorded), done
        by_reason, unlearned = counted(counts)
        return composed(
            Batch,
            self._terms,
            source=position.source,
            path=f"{path}#{session.id}",
            offset=max(position.offset, read.line),
            line=read.line,
            lines=tuple(lines),
            new=new,
            replaces=replaces,
            cursor=recorded,
            counts=by_reason,
            unlearned=unlearned,
        )


def _stamp(path: str) -> _Stamp | None:
    """Stamp of a database as it is now; None: it is gone."""
    try:
        main = os.stat(path)
    except OSError:
        return None
    files, newest = [(main.st_dev, main.st_ino, main.st_size, main.st_mtime_ns)], main.st_mtime
    try:
        log = os.stat(f"{path}-wal")
        files.append((log.st_dev, log.st_ino, log.st_size, log.st_mtime_ns))
        newest = max(newest, log.st_mtime)
    except OSError:
        pass
    return _Stamp(tuple(files), newest)


def _unstamped(cursor: SessionCursor) -> SessionCursor:
    return msgspec.structs.replace(cursor, stamp="")


def _cursor(position: Position) -> SessionCursor:
    try:
        known = msgspec.json.decode(position.cursor or "{}", type=_Recorded)
    except msgspec.MsgspecError as error:
        raise SourceRefused(
            f"the journal says that the session is read as {position.cursor!r}, which this apollod does not know",
            "use the version of apollod that began to read it",
        ) from error
    return SessionCursor(**{name: getattr(known, name) for name in SessionCursor.__struct_fields__})


def _recorded(reader: DatabaseReader, cursor: SessionCursor) -> str:
    values = {name: getattr(cursor, name) for name in SessionCursor.__struct_fields__}
    return msgspec.json.encode(_Recorded(format=reader.name, **values)).decode()
