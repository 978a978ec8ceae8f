"""Numbered SQL files that bring a journal to the schema of this code.

Law: forward only. A migration and its record commit together or not at all; an applied migration never changes; an
existing journal is copied aside before its first change; a journal of a newer schema is left alone.
"""

import os
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import NamedTuple

from apollod.adapters.journal.failures import explain, is_of_disk
from apollod.adapters.system.files import fsync_dir, fsync_file
from apollod.errors import JournalError

_NAME = re.compile(r"(\d{4})_(\w+)\.sql")


class Migration(NamedTuple):
    """One file of `migrations/`. `checksum`: SHA-256 of the file, hex."""

    number: int
    name: str
    sql: str
    checksum: str


def load(directory: Traversable | None = None) -> list[Migration]:
    """All migrations in order, by default those that come with this code."""
    found = []
    for entry in (directory or _directory()).iterdir():
        match = _NAME.fullmatch(entry.name)
        if match:
            data = entry.read_bytes()
            found.append(Migration(int(match[1]), match[2], data.decode(), sha256(data).hexdigest()))
    found.sort()
    assert [m.number for m in found] == list(range(1, len(found) + 1)), "migrations are numbered from 1 without gaps"
    return found


def migrate(connection: sqlite3.Connection, path: Path, migrations: Sequence[Migration], at_ns: int) -> list[int]:
    """Apply what is missing and return its numbers. `connection` to `path` is in autocommit (isolation_level None).

    Raises JournalError for a newer or a changed schema (before anything is written), and for a migration that fails:
    the journal is then as the migration before it left it.
    """
    version = _check(connection, path, migrations)
    pending = migrations[version:]
    if pending and version:
        _backup(connection, path, path.with_name(f"{path.name}.v{version}-{at_ns}.backup"))
    for migration in pending:
        _apply(connection, path, migration, at_ns)
    return [migration.number for migration in pending]


def _directory() -> Traversable:
    """In the wheel migrations lie inside the package, in a source tree and after `pip install -e` beside it."""
    inside = files("apollod") / "migrations"
    return inside if inside.is_dir() else Path(__file__).parents[3] / "migrations"


def _check(connection: sqlite3.Connection, path: Path, migrations: Sequence[Migration]) -> int:
    """The number of the newest migration in the journal, all of whose migrations are the ones given."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > len(migrations):
        raise JournalError(
            f"{path} has schema {version}, this apollod knows up to {len(migrations)}",
            "use the newer apollod that wrote it",
        )
    if version:
        applied = dict(connection.execute("SELECT number, checksum FROM migrations"))
        for migration in migrations[:version]:
            if applied.get(migration.number) != migration.checksum:
                raise JournalError(
                    f"migration {migration.number:04d}_{migration.name} is not the one that {path} was made with",
                    "use a released apollod, whose migrations never change",
                )
    return version


def _apply(connection: sqlite3.Connection, path: Path, migration: Migration, at_ns: int) -> None:
    try:
        connection.execute("BEGIN IMMEDIATE")
        for statement in _statements(migration.sql):
            connection.execute(statement)
        connection.execute(
            "INSERT INTO migrations (number, name, checksum, at_ns) VALUES (?, ?, ?, ?)",
            (migration.number, migration.name, migration.checksum, at_ns),
        )
        connection.execute(f"PRAGMA user_version = {migration.number}")
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        name = f"migration {migration.number:04d}_{migration.name}"
        if is_of_disk(error):
            raise explain(path, error, f" in {name}, which was rolled back") from error
        raise JournalError(
            f"{name} of {path} failed and was rolled back: {error}",
            "the journal is unchanged; make room on the disk or use the older apollod",
        ) from error


def _statements(sql: str) -> list[str]:
    """The file's statements one by one: `executescript` would commit before it starts. Each ends at a line's end."""
    statements, lines = [], []
    for line in sql.splitlines(keepends=True):
        lines.append(line)
        text = "".join(lines)
        if sqlite3.complete_statement(text):
            statements.append(text)
            lines = []
    rest = "".join(lines)
    assert not re.sub(r"--.*", "", rest).strip(), f"a migration ends within a statement: {rest!r}"
    return statements


def _backup(connection: sqlite3.Connection, path: Path, target: Path) -> None:
    """A whole, durable copy, readable by the daemon's user only; of one that does not succeed nothing stays."""
    part = target.with_name(f"{path.name}.backup.part")
    try:
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
        with closing(sqlite3.connect(part)) as copy:
            connection.backup(copy)
        fsync_file(part)
        part.rename(target)
        fsync_dir(target.parent)
    except (OSError, sqlite3.Error) as error:
        for left in (part, part.with_name(f"{part.name}-journal")):
            left.unlink(missing_ok=True)
        if isinstance(error, sqlite3.Error) and is_of_disk(error):
            raise explain(path, error, " while it was copied aside") from error
        need = path.stat().st_size >> 20
        raise JournalError(
            f"{path} could not be copied aside before its schema changes: {error}",
            f"the journal is unchanged; make room beside it (about {need + 1} MiB), or use the older apollod",
        ) from error
