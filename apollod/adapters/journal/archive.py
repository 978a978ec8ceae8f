"""Puts a long journal away and begins another one, which goes on from its newest checkpoint.

Law: at every moment the path of the journal holds the whole old one or the whole new one. The old one is replaced, in
one rename, after its copy was read back and is durable, and after the new one was folded to the state that the old one
ends with. Leftovers of an interrupted attempt are removed, or used, by the next.

Call with the daemon's lock held. Everything here blocks.
"""

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec

from apollod.adapters.journal import journal_reader
from apollod.adapters.journal.journal_connection import check_before_writing
from apollod.adapters.journal.journal_file import explain, log_of, reading, resolved
from apollod.adapters.journal.known_examples import fill, kinds
from apollod.adapters.journal.schema import load, migrate
from apollod.adapters.journal.verification import derived_damage
from apollod.adapters.system.files import fsync_dir, fsync_file
from apollod.core import continuation
from apollod.core.fold import fold
from apollod.core.state import State
from apollod.errors import JournalError
from apollod.failpoints import failpoint
from apollod.wire.event_codec import GENESIS, chain, decode_event, encode_body

ROWS = 500  # read by one statement
_BESIDE = ("journal", "wal", "shm")  # what SQLite puts beside a file

_KNOWN = """
    SELECT key FROM events WHERE kind = 'example.accepted'
    UNION
    SELECT CAST(carried.value AS TEXT) FROM events, json_each(events.body, '$.examples') AS carried
    WHERE events.kind = 'example.carried'
    ORDER BY 1
"""
_RESPONSES = """
    SELECT CASE kind WHEN 'example.accepted' THEN events.key END, CAST(response.value AS TEXT)
    FROM events, json_each(events.body, '$.responses') AS response
    WHERE kind IN ('example.accepted', 'example.carried') ORDER BY 2
"""
_SIGNALS = """
    SELECT key FROM events WHERE kind = 'signal.flagged'
    UNION
    SELECT CAST(signal.value AS TEXT) FROM events, json_each(events.body, '$.signals') AS signal
    WHERE events.kind = 'example.carried' ORDER BY 1
"""


class Archived(NamedTuple):
    """The old journal, and the beginning of the new one: `step` of its weights, number of its `events`; `known`:
    number of examples that are not learned again."""

    archive: continuation.Archive
    step: int
    events: int
    known: int


class _Old(NamedTuple):
    """The old journal, read from end to end."""

    path: Path
    state: State
    notes: continuation.Notes
    head: bytes


def archive(journal: Path, copy: Path, at_ns: int) -> Archived:
    """Put the journal away at `copy` and have another one in its place, which begins at the newest checkpoint.

    Raises JournalError, and leaves the journal as it is, where it is damaged or in use, does not end at a checkpoint,
    or `copy` is something else; also OSError.
    """
    path, copy = resolved(journal), Path(os.path.abspath(copy))
    check_before_writing(path, load().number)
    _fold_log_in(path)
    old = _read(path)
    if why := continuation.obstacle(old.state):
        raise JournalError(
            f"the journal {journal} cannot be archived as it ends: {why}",
            "start the daemon, wait until it serves, and stop it with SIGTERM: that writes a checkpoint",
        )
    newest = old.state.checkpoints.newest
    assert newest is not None
    if not Path(newest.path).is_dir():
        raise JournalError(
            f"the checkpoint {newest.path}, at which the next journal would begin, is not there",
            "put it back, or start the daemon and write another",
        )
    if copy.is_dir():
        copy = copy / f"journal-{newest.step:08d}.db"
    new = path.with_name(f"{path.name}.begun")
    _check_apart(path, copy, new)
    _copy_aside(old, copy)
    failpoint("archive.copied")
    try:
        told = _begin(old, new, continuation.Archive(str(copy), old.state.seq, old.head.hex()), at_ns)
        failpoint("archive.begun")
        _fold_log_in(path)  # what reading it left beside it is not of the new one
        new.rename(path)
    finally:
        _remove(new)
    fsync_dir(path.parent)
    return told


def misfit(path: str | Path, archive_path: str | Path) -> str:
    """The reason why a journal with a good chain does not go on where this archive ends; empty: it does.

    Raises JournalError for an archive that cannot be read.
    """
    begun, found = journal_reader.continued(path), journal_reader.proved(archive_path)
    if begun is None:
        return "the journal says of no archive that it goes on from there"
    if found.broken is not None:
        return f"the archive is broken at event {found.broken}: it was edited, is missing or out of place"
    if (found.seq, found.hash.hex()) != (begun.events, begun.head_hash):
        return (
            f"the journal goes on from an archive of {begun.events} events with head {begun.head_hash}, this one has "
            f"{found.seq} with head {found.hash.hex()}"
        )
    old = _read(Path(archive_path)).state.training
    if (old.version, old.fingerprint, old.step) != (begun.step, begun.fingerprint, begun.last_step):
        return f"the archive ends with weights {old.fingerprint} of step {old.version}, not with what the journal says"
    with reading(path) as db:
        known = {id_ for (id_,) in db.execute("SELECT id FROM known_examples")}
    unknown = next((id_ for (id_,) in _derived(Path(archive_path), _KNOWN) if id_ not in known), None)
    return f"the archive accepted the example {unknown}, which the journal does not know" if unknown else ""


def _check_apart(path: Path, copy: Path, new: Path) -> None:
    """Raise JournalError for a copy at a path that is about to be replaced."""
    ours = {path, new, *(path.with_name(f"{path.name}-{end}") for end in _BESIDE)}
    if resolved(copy) in ours or (copy.exists() and copy.samefile(path)):
        raise JournalError(f"{copy} is the journal itself, or lies where it needs room", "give another name")


def _fold_log_in(path: Path) -> None:
    """Move the write-ahead log into the file. Raises JournalError where another process has the journal open."""
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=0.0, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous = FULL")
            ((busy, _, _),) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.Error as error:
        raise explain(path, error) from error
    if busy or log_of(path).exists():
        raise JournalError(f"another process has the journal {path} open", "end it, and try again")


def _read(path: Path) -> _Old:
    state, notes, head = State(), continuation.Notes(), GENESIS
    for recorded, hash_ in journal_reader.recorded(path):
        fold(state, recorded)
        notes.see(recorded)
        head = hash_
    return _Old(path, state, notes, head)


# --- the copy -----------------------------------------------------------------------------------------------------


def _copy_aside(old: _Old, copy: Path) -> None:
    """Make a single read-only file, proved and durable under its name; keep one that is there already."""
    if copy.exists():
        if (found := journal_reader.proved(copy)).broken is None and found.hash == old.head:
            copy.chmod(0o400)
            return
        raise JournalError(f"{copy} exists and is not a copy of {old.path}", "give another name")
    part = copy.with_name(f"{copy.name}.part")
    _remove(part)
    try:
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with closing(sqlite3.connect(old.path)) as source, closing(sqlite3.connect(part)) as target:
            source.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")  # without a log it can be read from any disk
        found = journal_reader.proved(part)
        if found.broken is not None or found.hash != old.head:
            raise JournalError(f"the copy {part} is not what was written", "look at its disk; nothing was changed")
        if damage := derived_damage(part):
            raise damage
        part.chmod(0o400)
        fsync_file(part)
        part.rename(copy)
        fsync_dir(copy.parent)
    except sqlite3.Error as error:
        raise explain(part, error) from error
    finally:
        _remove(part)


# --- the next journal ---------------------------------------------------------------------------------------------


def _begin(old: _Old, new: Path, put: continuation.Archive, at_ns: int) -> Archived:
    """Make a whole, durable journal that folds to the state with which the old one ends."""
    _remove(new)
    kept = continuation.kept_examples(old.state)
    settled = (id_ for (id_,) in _derived(old.path, _KNOWN) if id_ not in kept)
    lessons = _Lessons(old.path, kept)
    responses = (key for id_, key in _derived(old.path, _RESPONSES) if id_ not in kept)
    signals = (id_ for (id_,) in _derived(old.path, _SIGNALS))
    dated = continuation.continuation(old.state, old.notes, put, settled, lessons.of, at_ns, responses, signals)
    try:
        os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with closing(sqlite3.connect(new, isolation_level=None)) as db:
            migrate(db, new, load(), at_ns)
            db.execute("BEGIN IMMEDIATE")
            db.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)", _rows(dated))
            for kind in kinds():
                fill(db, kind)
            ((known,),) = db.execute("SELECT count(*) FROM example_index")
            ((size,),) = db.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
            db.execute("INSERT INTO meta VALUES ('carried_bytes', ?)", (str(size),))
            db.execute("COMMIT")
    except sqlite3.Error as error:
        raise explain(new, error) from error
    fsync_file(new)
    begun = _read(new).state
    if continuation.carried_state(begun) != continuation.carried_state(old.state):
        raise JournalError("the next journal would not fold to the state of this one", "this is a bug in apollod")
    if damage := derived_damage(new):
        raise damage
    return Archived(put, begun.training.version, begun.seq, known)


def _rows(dated: Iterable[continuation.Dated]) -> Iterator[tuple[int, int, str, int, str, str, bytes, bytes]]:
    prev = GENESIS
    for seq, (at_ns, event) in enumerate(dated, 1):
        kind, version, key, body = event.kind, event.version, event.key(), encode_body(event)
        hash_ = chain(prev, seq, at_ns, kind, version, key, body)
        yield seq, at_ns, kind, version, key, body.decode(), prev, hash_
        prev = hash_


def _derived(path: Path, sql: str) -> Iterator[tuple[str, ...]]:
    """Rows of examples, answers or signals that a journal and its archives know."""
    with reading(path) as db:
        try:
            yield from db.execute(sql)
        except sqlite3.Error as error:
            raise explain(path, error) from error


class _Lessons:
    """Examples as a journal recorded them, read again some at a time: records can be long."""

    def __init__(self, path: Path, wanted: set[str]) -> None:
        self._path = path
        self._accepted, self._encoded = [self._newest(kind, wanted) for kind in ("example.accepted", "example.encoded")]

    def _newest(self, kind: str, wanted: set[str]) -> dict[str, int]:
        with reading(self._path) as db:
            rows = db.execute("SELECT key, seq FROM events WHERE kind = ? ORDER BY seq", (kind,))
            return {id_: seq for id_, seq in rows if id_ in wanted}

    def of(self, examples: Sequence[str]) -> Iterator[tuple[continuation.Dated, continuation.Dated | None]]:
        rest = iter(examples)
        while part := list(islice(rest, ROWS)):
            seqs = [seq for id_ in part for seq in (self._accepted[id_], self._encoded.get(id_)) if seq]
            with reading(self._path) as db:
                rows = db.execute(
                    "SELECT seq, at_ns, kind, version, body FROM events WHERE seq IN (SELECT value FROM json_each(?))",
                    (msgspec.json.encode(seqs).decode(),),
                )
                found = {seq: (at_ns, decode_event(kind, version, body)) for seq, at_ns, kind, version, body in rows}
            for id_ in part:
                encoded = self._encoded.get(id_)
                yield found[self._accepted[id_]], found[encoded] if encoded else None


def _remove(file: Path) -> None:
    """Remove an unfinished file, with SQLite's files beside it."""
    for left in (file, *(file.with_name(f"{file.name}-{end}") for end in _BESIDE)):
        with suppress(FileNotFoundError):
            left.unlink()
