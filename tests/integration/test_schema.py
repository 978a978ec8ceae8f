"""Schema changes: once, whole or not at all, never over somebody else's file."""

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from apollod.adapters.journal import schema as module
from apollod.adapters.journal.journal_reader import verify
from apollod.adapters.journal.writer import Journal
from apollod.errors import JournalError


def shell(path: Path) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(path, isolation_level=None))


async def begin(path: Path) -> None:
    """A new journal, closed again."""
    await (await Journal.open(path)).close()


def schema(directory: Path, views: str = "", **files: str) -> module.Schema:
    """These files, and those that the directory had already."""
    directory.mkdir(exist_ok=True)
    for name, sql in files.items():
        (directory / f"{name.removeprefix('n')}.sql").write_text(sql)
    (directory / "views.sql").write_text(views)
    return module.load(directory)


BASE = """\
CREATE TABLE migrations (number INTEGER PRIMARY KEY, name TEXT, checksum TEXT, at_ns INTEGER);
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT);
CREATE TABLE old (x);
"""
TRIGGER = (
    "CREATE TABLE t (x);\nCREATE TRIGGER tt BEFORE DELETE ON t\nBEGIN\n  SELECT 1; -- why;\n  SELECT 2;\nEND;\n-- end\n"
)


def test_migrations_are_applied_once_with_their_record(tmp_path: Path) -> None:
    found = schema(tmp_path / "m", n0001_base=BASE, n0002_more=TRIGGER)
    with shell(tmp_path / "a.db") as db:
        assert module.migrate(db, tmp_path / "a.db", found, 5) == [1, 2]
        assert module.migrate(db, tmp_path / "a.db", found, 6) == []
        rows = db.execute("SELECT * FROM migrations").fetchall()
        first, second = found.migrations
        assert rows == [(1, "base", first.checksum, 5), (2, "more", second.checksum, 5)]
        assert db.execute("PRAGMA user_version").fetchone() == (2,)
    assert not list(tmp_path.glob("*.backup"))


def test_a_failing_migration_rolls_back_and_can_be_repaired(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with shell(path) as db:
        first = schema(tmp_path / "m", n0001_base=BASE)
        module.migrate(db, path, first, 5)
        bad = schema(tmp_path / "m", n0002_bad="CREATE TABLE good (x);\nCREATE TABLE oops (;\n")
        with pytest.raises(JournalError, match=r"0002_bad of .* was rolled back"):
            module.migrate(db, path, bad, 6)
        assert db.execute("SELECT name FROM sqlite_master WHERE name = 'good'").fetchall() == []
        assert db.execute("PRAGMA user_version").fetchone() == (1,)
        repaired = schema(tmp_path / "m", n0002_bad="CREATE TABLE good (x);\n")
        assert module.migrate(db, path, repaired, 7) == [2]


def test_an_existing_journal_is_copied_before_its_first_change(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with shell(path) as db:
        module.migrate(db, path, schema(tmp_path / "m", n0001_base=BASE), 5)
        module.migrate(db, path, schema(tmp_path / "m", n0002_drop="DROP TABLE old;\n", n0003_t=TRIGGER), 6)
    (backup,) = tmp_path.glob("*.backup")
    assert backup.name == "a.db.v1-6.backup"
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    with shell(backup) as db:
        assert db.execute("SELECT count(*) FROM old").fetchone() == (0,)
        assert db.execute("PRAGMA user_version").fetchone() == (1,)


def test_a_changed_migration_and_a_future_schema_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with shell(path) as db:
        found = schema(tmp_path / "m", n0001_base=BASE, n0002_more=TRIGGER)
        module.migrate(db, path, found, 5)
        with pytest.raises(JournalError, match="schema 2, this apollod knows up to 1"):
            module.migrate(db, path, found._replace(migrations=found.migrations[:1]), 6)
        changed = schema(tmp_path / "m", n0002_more=TRIGGER + "-- changed\n")
        with pytest.raises(JournalError, match="0002_more is not the one"):
            module.migrate(db, path, changed, 6)


def test_a_journal_of_the_future_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    anyio.run(begin, path)
    with shell(path) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(JournalError, match="schema 99") as caught:
        anyio.run(begin, path)
    assert "newer apollod" in caught.value.hint


def test_an_installed_wheel_finds_its_migrations_inside_the_package(tmp_path: Path) -> None:
    """As pyproject.toml lays it out; there is no folder beside the package then."""
    root = Path(module.__file__).parents[3]
    shutil.copytree(root / "apollod", tmp_path / "apollod", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(root / "migrations", tmp_path / "apollod" / "migrations")
    script = "from apollod.adapters.journal import schema; print(schema.__file__, schema.load().digest)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [
        str(tmp_path / "apollod" / "adapters" / "journal" / "schema.py"),
        module.load().digest,
    ]


def test_the_released_migrations_set_what_identifies_a_journal() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        found = module.load()
        module.migrate(db, Path("memory"), found, 5)
        assert db.execute("PRAGMA application_id").fetchone() == (0x41504F4C,)
        assert db.execute("PRAGMA user_version").fetchone() == (found.number,)


def test_a_crash_before_the_first_migration_is_no_foreign_file(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with shell(path) as db:
        db.execute("PRAGMA journal_mode = WAL")
    anyio.run(begin, path)
    assert verify(path) is None


def test_a_first_start_that_was_killed_right_before_its_migration_was_whole_is_begun_anew(tmp_path: Path) -> None:
    """SQLite undoes it from the file that it leaves beside the database."""
    killed, path = tmp_path / "killed.db", tmp_path / "journal.db"
    with shell(killed) as db:
        db.execute("PRAGMA cache_size = 1")  # so that it does not keep everything in memory until the commit
        db.execute("BEGIN IMMEDIATE")
        for statement in module._statements(module.load().migrations[0].sql):
            db.execute(statement)
        shutil.copy(f"{killed}-journal", f"{path}-journal")
        db.execute("COMMIT")
    shutil.copy(killed, path)
    anyio.run(begin, path)
    assert verify(path) is None and not Path(f"{path}-journal").exists()


def test_the_copy_is_on_disk_under_its_name_before_the_schema_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, fsync, seen = tmp_path / "a.db", os.fsync, []

    def noted(fd: int) -> None:
        fsync(fd)
        if os.readlink(f"/proc/self/fd/{fd}") == str(tmp_path) and list(tmp_path.glob("*.backup")):
            with shell(path) as other:
                seen.extend(other.execute("PRAGMA user_version").fetchone())

    with shell(path) as db:
        module.migrate(db, path, schema(tmp_path / "m", n0001_base=BASE), 5)
        monkeypatch.setattr(os, "fsync", noted)
        module.migrate(db, path, schema(tmp_path / "m", n0002_more=TRIGGER), 6)
    assert seen == [1]
