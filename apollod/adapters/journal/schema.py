"""Brings a journal to the schema of this code: numbered SQL files for stored tables, `views.sql` for what is derived.

Law: forward only, in one transaction, so that a journal is as it was or as this code wants it. An applied numbered file
never changes; before one is applied, an existing journal is copied aside; a journal of a newer schema is left alone.
Derived objects (indexes, index tables, views) are made again where `views.sql` is another one, which needs no copy: the
events are not touched.
"""

import os
import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, NamedTuple

from apollod.adapters.journal.journal_file import explain, is_of_disk
from apollod.adapters.journal.known_examples import fill, kinds
from apollod.adapters.system.files import fsync_dir, fsync_file
from apollod.core.example_state import KINDS, RULES, Rule
from apollod.errors import JournalError

VIEWS = "views.sql"
RULES_HERE = "{EXAMPLE_RULES}"
_NAME = re.compile(r"(\d{4})_(\w+)\.sql")
_APPLIED = "SELECT value FROM meta WHERE key = 'views'"


class Migration(NamedTuple):
    """One numbered file of `migrations/`. `checksum`: SHA-256 of the file, hex."""

    number: int
    name: str
    sql: str
    checksum: str


class Object(NamedTuple):
    """A row of `sqlite_master`: `kind` is table, index, trigger or view; `sql` its CREATE statement as SQLite keeps it,
    which is from the name on the text that was run."""

    kind: str
    sql: str


Objects = Mapping[str, Object]
"""By name."""


class Schema(NamedTuple):
    """The files of `migrations/`. The first one makes a journal; journals of smaller numbers have its tables already
    and differ from it in derived objects only (docs/decisions/0037)."""

    migrations: tuple[Migration, ...]
    views: str
    """text of `views.sql`, with `core.example_state.RULES` in it"""

    @property
    def number(self) -> int:
        """The newest migration, and PRAGMA user_version of a journal that has it."""
        return self.migrations[-1].number

    @property
    def digest(self) -> str:
        """SHA-256 of `views`, hex; kept in `meta.views`."""
        return sha256(self.views.encode()).hexdigest()


def load(directory: Traversable | None = None) -> Schema:
    """The schema in a directory, by default the one that comes with this code."""
    directory, found = directory or _directory(), []
    for entry in directory.iterdir():
        if match := _NAME.fullmatch(entry.name):
            data = entry.read_bytes()
            found.append(Migration(int(match[1]), match[2], data.decode(), sha256(data).hexdigest()))
    found.sort()
    numbers = [migration.number for migration in found]
    assert numbers == list(range(numbers[0], numbers[0] + len(found))), "migrations are numbered without gaps"
    return Schema(tuple(found), (directory / VIEWS).read_text().replace(RULES_HERE, _example_rules()))


def migrate(connection: sqlite3.Connection, path: Path, schema: Schema, at_ns: int) -> list[int]:
    """Apply missing migrations and a changed `views.sql`; the numbers of the migrations. `connection` to `path` is in
    autocommit (isolation_level None).

    Raises JournalError for a newer or a changed schema, before anything is written, and where a file fails: the journal
    is then as it was.
    """
    version = _check(connection, path, schema)
    pending = [migration for migration in schema.migrations if migration.number > version]
    if not pending and _value(connection, _APPLIED) == schema.digest:
        return []
    if pending and version:
        _backup(connection, path, path.with_name(f"{path.name}.v{version}-{at_ns}.backup"))
    name = VIEWS
    try:
        connection.execute("BEGIN IMMEDIATE")
        for migration in pending:
            name = f"migration {migration.number:04d}_{migration.name}"
            _apply(connection, migration, at_ns, run=not version or migration is not schema.migrations[0])
        name = VIEWS
        _derive(connection, schema)
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        if is_of_disk(error):
            raise explain(path, error, f" in {name}, which was rolled back") from error
        raise JournalError(
            f"{name} of {path} failed and was rolled back: {error}",
            "the journal is unchanged; make room on the disk or use the older apollod",
        ) from error
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return [migration.number for migration in pending]


def _example_rules() -> str:
    """Rows (kind, field, unsaid, state, otherwise) for the view `examples`; NULL where a rule changes no state."""
    kinds: dict[str, list[Rule]] = {kind: [] for kind in KINDS}
    for rule in RULES:
        kinds[rule.kind].append(rule)
    rows = []
    for kind, (first, *_) in kinds.items():
        into = {rule.value: "NULL" if rule.out_of == (rule.into,) else f"'{rule.into}'" for rule in kinds[kind]}
        rows.append(f"('{kind}', '{first.field}', {first.value:d}, {into[True]}, {into.get(False, into[True])})")
    return ", ".join(rows)


def _directory() -> Traversable:
    """The directory of migrations: inside the package in a wheel, beside it in a source tree."""
    inside = files("apollod") / "migrations"
    return inside if inside.is_dir() else Path(__file__).parents[3] / "migrations"


def _check(connection: sqlite3.Connection, path: Path, schema: Schema) -> int:
    """The number of the newest migration in the journal; 0 for an empty database. Raises JournalError for one that is
    newer than `schema`, and for one that was made by other files."""
    version: int = _value(connection, "PRAGMA user_version")
    if version > schema.number:
        raise JournalError(
            f"{path} has schema {version}, this apollod knows up to {schema.number}",
            "use the newer apollod that wrote it",
        )
    applied = dict(connection.execute("SELECT number, checksum FROM migrations")) if version else {}
    for migration in schema.migrations:
        if migration.number <= version and applied.get(migration.number) != migration.checksum:
            raise JournalError(
                f"migration {migration.number:04d}_{migration.name} is not the one that {path} was made with",
                "use a released apollod, whose migrations never change",
            )
    if 0 < version < schema.migrations[0].number:
        found = _objects(connection)
        for name, one in _made_by(schema.migrations[0].sql).items():
            if one.kind == "table" and found.get(name) != one:
                raise JournalError(
                    f"the table {name} of {path}, whose schema is {version}, is not the one that an apollod made",
                    "the journal is unchanged; restore a backup, or use the apollod that made it",
                )
    return version


def _apply(connection: sqlite3.Connection, migration: Migration, at_ns: int, run: bool) -> None:
    """Record a migration. `run`: and its statements; False for the tables of a journal of before its first file."""
    for statement in _statements(migration.sql) if run else ():
        connection.execute(statement)
    connection.execute(
        "INSERT INTO migrations (number, name, checksum, at_ns) VALUES (?, ?, ?, ?)",
        (migration.number, migration.name, migration.checksum, at_ns),
    )
    connection.execute(f"PRAGMA user_version = {migration.number}")


def _derive(connection: sqlite3.Connection, schema: Schema) -> None:
    """Have every object but the stored tables as `schema` makes it: drop all views and what differs, make what is
    missing, fill index tables that were made. Raises sqlite3.Error."""
    scripts = [migration.sql for migration in schema.migrations]
    stored = {name for name, one in _made_by(*scripts).items() if one.kind == "table"}
    wanted = {name: one for name, one in _made_by(*scripts, schema.views).items() if name not in stored}
    for name, one in _objects(connection).items():
        if one.kind == "view" or wanted.get(name, one) != one:
            quoted = name.replace('"', '""')
            connection.execute(f'DROP {one.kind} IF EXISTS "{quoted}"')  # an index is gone with its table
    found = _objects(connection)
    for name, one in wanted.items():
        if name not in found:
            connection.execute(one.sql)
    for kind in kinds():
        if kind.table in wanted and kind.table not in found:
            fill(connection, kind)
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('views', ?)", (schema.digest,))


def _made_by(*scripts: str) -> Objects:
    """Everything that these files make in an empty database. Takes about 2 ms."""
    with closing(sqlite3.connect(":memory:")) as db:
        for script in scripts:
            db.executescript(script)
        return _objects(db)


def _objects(connection: sqlite3.Connection) -> Objects:
    """Every object of a database, in the order of creation."""
    rows = connection.execute("SELECT name, type, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid")
    return {name: Object(kind, sql) for name, kind, sql in rows}


def _value(connection: sqlite3.Connection, sql: str) -> Any:
    """The first column of the first row; None without one."""
    row = connection.execute(sql).fetchone()
    return row[0] if row else None


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
    """Make a whole, durable copy, readable by the daemon's user only; remove one that does not succeed."""
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
