"""A journal of every earlier schema is opened, loses nothing, and is from then on as a new one.

`migrations/` here has the files with which apollod made journals of the schemas 1 to 23.
"""

import shutil
import sqlite3
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from golden.answers import differences, views
from support import in_memory
from support.every_view import EVERY_VIEW
from support.journals import AT, accepted, edit, opened, shell, write

from apollod.adapters.journal import journal_reader
from apollod.adapters.journal import schema as module
from apollod.adapters.journal.verification import derived_damage
from apollod.core import events as ev
from apollod.core.facts.intake.repeats import SCHEME
from apollod.errors import JournalError

MIGRATIONS = sorted((Path(__file__).parent / "migrations").glob("*.sql"))
VERSIONS = range(1, len(MIGRATIONS) + 1)
SIGNED = {
    f"{n:032x}": SCHEME + b64encode(blake2b(str(n).encode()).digest() * 2).decode() for n in range(40)
}  # signatures, by example
STORY: list[ev.Event] = [
    *EVERY_VIEW,
    *(
        msgspec.structs.replace(accepted(id_, 1), responses=(f"answer {id_}",), signature=signed)
        for id_, signed in SIGNED.items()
    ),
]
SHAPE = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"
EVENTS = "SELECT * FROM events ORDER BY seq"

tmp_path = in_memory.tmp_path


@pytest.fixture(scope="module")
def fresh() -> Iterator[Path]:
    with in_memory.directory() as path:
        yield write(path / "journal.db", STORY)


@pytest.fixture(scope="module")
def said(fresh: Path) -> tuple[list[Any], list[tuple[Any, ...]], dict[str, list[dict[str, Any]]]]:
    """What the new journal says: its writer, its schema, its views."""
    return known(fresh), asked(fresh, SHAPE), views(fresh)


def older(path: Path, version: int, events: Path) -> Path:
    """A journal as the apollod of this schema left it, with the events of another journal."""
    with shell(path) as db, closing(sqlite3.connect(events)) as other:
        for number, file in enumerate(MIGRATIONS[:version], 1):
            db.executescript(file.read_text())
            row = number, file.stem.partition("_")[2], sha256(file.read_bytes()).hexdigest(), AT
            db.execute("INSERT INTO migrations VALUES (?, ?, ?, ?)", row)
        db.execute("PRAGMA journal_mode = WAL")
        db.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)", other.execute(EVENTS))
    return path


def asked(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with shell(path) as db:
        return db.execute(sql).fetchall()


def known(path: Path) -> list[Any]:
    """The head, and what the writer knows of examples, answers, texts and signals."""

    async def ask() -> list[Any]:
        async with opened(path) as journal:
            return [
                journal.head, await journal.known([*SIGNED, "none"]),
                await journal.learned_by([*(f"answer {id_}" for id_ in SIGNED), "none"]),
                await journal.like(SIGNED.values()), await journal.flagged(["s1", "none"]),
            ]  # fmt: skip

    return anyio.run(ask)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_older_journal_becomes_as_a_new_one_and_loses_nothing(
    fresh: Path, said: tuple[Any, ...], tmp_path: Path, version: int
) -> None:
    path = older(tmp_path / "journal.db", version, fresh)
    before = asked(path, EVENTS)
    seen = views(path) if version == VERSIONS[-1] else {}
    assert known(path) == said[0]
    assert asked(path, SHAPE) == said[1]
    assert asked(path, EVENTS) == before and journal_reader.verify(path) is None and derived_damage(path) is None
    now = views(path)
    assert now == said[2] and all(now.values()), "every view has rows"
    newest = module.load().number
    assert asked(path, "PRAGMA user_version") == [(newest,)]
    numbers = asked(path, "SELECT number FROM migrations ORDER BY number")
    assert numbers == [(number,) for number in (*range(1, version + 1), newest)]
    (backup,) = tmp_path.glob("*.backup")
    assert asked(backup, EVENTS) == before and asked(backup, "PRAGMA user_version") == [(version,)]
    assert asked(backup, "SELECT value FROM meta WHERE key = 'journal_id'") == asked(
        path, "SELECT value FROM meta WHERE key = 'journal_id'"
    )
    if version == VERSIONS[-1]:
        assert list(differences(seen, now)) == [], "the views say what they said"
    known(path)
    assert list(tmp_path.glob("*.backup")) == [backup], "a second start changes nothing"


@pytest.mark.parametrize(("version", "made"), [(7, ["response", "near", "signal"]), (9, ["signal"]), (10, [])])
def test_index_tables_that_are_there_keep_their_rows(
    fresh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, made: list[str]
) -> None:
    filled = list[str]()
    monkeypatch.setattr(module, "fill", lambda _, kind: filled.append(kind.table.removesuffix("_index")))
    path = older(tmp_path / "journal.db", version, fresh)
    with shell(path) as db:
        module.migrate(db, path, module.load(), AT)
    assert filled == made


def test_an_index_table_that_was_made_anew_is_complete(fresh: Path, tmp_path: Path) -> None:
    path = older(tmp_path / "journal.db", 7, fresh)
    with shell(path) as db:
        module.migrate(db, path, module.load(), AT)
    assert asked(path, "SELECT count(*) FROM response_index") == [(len(SIGNED),)]
    assert asked(path, "SELECT count(*), min(id) < 0 FROM near_index") == [(16 * len(SIGNED), 1)]
    assert asked(path, "SELECT id FROM signal_index") == [("s1",)]
    last = asked(path, "SELECT max(seq) FROM events")
    for row in ("responses", "near", "signals"):
        assert asked(path, f"SELECT CAST(value AS INTEGER) FROM meta WHERE key = '{row}_indexed_seq'") == last


def test_a_table_of_events_that_no_apollod_made_is_refused_and_not_copied(fresh: Path, tmp_path: Path) -> None:
    path = older(tmp_path / "journal.db", 3, fresh)
    with shell(path) as db:
        db.execute("ALTER TABLE events ADD COLUMN more TEXT")
    shape = asked(path, SHAPE)
    with shell(path) as db, pytest.raises(JournalError, match=r"the table events of .*, whose schema is 3, is not"):
        module.migrate(db, path, module.load(), AT)
    assert asked(path, SHAPE) == shape and not list(tmp_path.glob("*.backup"))


def test_triggers_that_somebody_removed_are_back(fresh: Path, tmp_path: Path) -> None:
    path = older(tmp_path / "journal.db", 20, fresh)
    edit(path)
    known(path)
    assert asked(path, SHAPE) == asked(fresh, SHAPE)


# --- a change that does not succeed -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 9, 23])
def test_a_change_that_fails_leaves_all_as_it_was_and_is_made_by_the_next_start(
    fresh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    path = older(tmp_path / "journal.db", version, fresh)
    before = asked(path, SHAPE), asked(path, "SELECT * FROM meta"), asked(path, "SELECT * FROM migrations")
    bad = module.load()._replace(views=f"{module.load().views}\nCREATE INDEX again ON events (at_ns, body, seq);")

    def fail(action: int, name: str | None, *_: str | None) -> int:
        return sqlite3.SQLITE_DENY if (action, name) == (sqlite3.SQLITE_CREATE_INDEX, "again") else sqlite3.SQLITE_OK

    with shell(path) as db:
        db.set_authorizer(fail)
        with pytest.raises(JournalError, match=r"views.sql of .* failed and was rolled back") as caught:
            module.migrate(db, path, bad, AT)
        assert "the journal is unchanged" in caught.value.hint and not db.in_transaction
    assert before == (asked(path, SHAPE), asked(path, "SELECT * FROM meta"), asked(path, "SELECT * FROM migrations"))
    assert known(path) == known(fresh) and asked(path, SHAPE) == asked(fresh, SHAPE)


@pytest.fixture
def killed(fresh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A journal of schema 5 as it is on disk where its start is killed while it fills the last index table."""
    path, copy = older(tmp_path / "journal.db", 5, fresh), tmp_path / "killed" / "journal.db"
    copy.parent.mkdir()
    fill = module.fill

    def fill_and_copy(db: sqlite3.Connection, kind: Any) -> None:
        fill(db, kind)
        db.execute("PRAGMA cache_spill = ON")
        for end in ("", "-wal"):
            shutil.copy(f"{path}{end}", f"{copy}{end}")

    with monkeypatch.context() as patched, shell(path) as db:
        patched.setattr(module, "fill", fill_and_copy)
        db.execute("PRAGMA cache_size = 1")  # pages go to the log before the commit
        module.migrate(db, path, module.load(), AT)
    yield copy


def test_a_start_that_is_killed_in_the_middle_is_made_again(fresh: Path, killed: Path) -> None:
    assert Path(f"{killed}-wal").stat().st_size > 50_000
    assert asked(killed, "PRAGMA user_version") == [(5,)]
    assert known(killed) == known(fresh) and asked(killed, SHAPE) == asked(fresh, SHAPE)
    assert journal_reader.verify(killed) is None


# --- the same schema, other views ---------------------------------------------------------------------------------


@pytest.fixture
def current(fresh: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(fresh, tmp_path / "journal.db"))


def test_a_start_with_the_same_views_only_reads(current: Path) -> None:
    said = list[str]()
    with shell(current) as db:
        db.set_trace_callback(said.append)
        assert module.migrate(db, current, module.load(), AT) == []
        assert db.total_changes == 0
    assert said and all(sql.startswith(("SELECT", "PRAGMA user_version")) for sql in said) and len(said) <= 3


def test_other_views_are_made_without_a_copy_and_tables_are_kept(
    current: Path, fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older apollod of the same schema puts its own views back."""
    here = module.load()
    others = here._replace(views=here.views.replace("CREATE VIEW gains AS", "CREATE VIEW won AS"))
    monkeypatch.setattr(module, "fill", lambda *_: pytest.fail("no table was made"))
    with shell(current) as db:
        assert module.migrate(db, current, others, AT) == []
        assert db.execute("SELECT count(*) FROM won").fetchone() != (0,)
    assert not [row for row in asked(current, SHAPE) if row[1] == "gains"]
    with shell(current) as db:
        assert module.migrate(db, current, here, AT) == []
    assert asked(current, SHAPE) == asked(fresh, SHAPE) and asked(current, EVENTS) == asked(fresh, EVENTS)
    assert not list(current.parent.glob("*.backup"))


def test_a_table_whose_statement_changed_is_filled_from_the_events(current: Path, fresh: Path) -> None:
    here = module.load()
    text, other = "-- a band of a signature", "-- a band (version 2) of a signature"
    changed = here._replace(views=here.views.replace(text, other))
    with shell(current) as db:
        db.execute("INSERT INTO near_index VALUES (5, 5)")
        db.execute("INSERT INTO signal_index VALUES ('s9', 5)")
        module.migrate(db, current, changed, AT)
        assert db.execute("SELECT count(*), sum(id = 5) FROM near_index").fetchone() == (16 * len(SIGNED), 0)
        assert db.execute("SELECT * FROM signal_index").fetchall() == [("s9", 5)], "its statement is the same"
        module.migrate(db, current, here, AT)
    assert known(current) == known(fresh) and asked(current, SHAPE) == asked(fresh, SHAPE)


def test_a_newer_schema_is_refused(current: Path) -> None:
    with shell(current) as db:
        db.execute("PRAGMA user_version = 25")
        with pytest.raises(JournalError, match="has schema 25, this apollod knows up to 24") as caught:
            module.migrate(db, current, module.load(), AT)
    assert caught.value.hint == "use the newer apollod that wrote it"
