"""Asking the journal: views, one reading statement, nothing else."""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from support.journals import append_row, edit, step_completed

from apollod.adapters.journal.journal_reader import events, query, recorded, verified, verify
from apollod.adapters.journal.writer import Journal
from apollod.core import events as ev
from apollod.errors import ChainBroken, JournalError
from apollod.wire.event_codec import GENESIS

AT = 1_700_000_000_123_456_789
PAGE = 4096
ISO = "2023-11-14T22:13:20.123Z"


def accepted(name: str, line: int) -> ev.ExampleAccepted:
    return ev.ExampleAccepted(
        example=name, record=msgspec.Raw(b'{"text":"%s"}' % name.encode()), source="src", line=line
    )


def consumed(offset: int, line: int, path: str, *counts: int) -> ev.SourceConsumed:
    return ev.SourceConsumed(
        source="src", path=path, offset=offset, line=line, accepted=counts[0], duplicates=counts[1], rejected=counts[2]
    )


STORY: list[ev.Event] = [
    ev.EngineSpawned(pid=10, model_dir="/m", attempt=1),
    ev.TrainerSpawned(pid=11, attempt=1),
    ev.SourceDiscovered(source="src", path="/in/a.jsonl"),
    *[accepted(name, number) for number, name in enumerate("abcdef", 1)],
    consumed(600, 6, "/in/a.jsonl", 6, 0, 0),
    ev.ExampleDuplicate(example="a", source="src", line=7),
    ev.SourceQuarantined(
        source="src", path="/in/b.jsonl", line=8, reason="not JSON", bytes=3, sha256="aa", kept="/q/aa"
    ),
    consumed(700, 8, "/in/b.jsonl", 0, 1, 1),
    ev.ExampleEncoded(example="a", tokens=9, targets=4, cut=0, digest="d"),
    ev.ExampleRejected(example="b", reason="too long"),
    ev.StepStarted(step=1, parent=0, example="a", digest="d", lr=1e-5, window=1),
    step_completed(1, 0, "a"),
    step_completed(2, 1, "c", None),
    ev.StepFailed(step=3, example="d", reason="out of memory", attempts=3),
    ev.StepFailed(step=4, example="e", reason="trainer died", attempts=1),
    step_completed(5, 4, "e"),
    ev.CheckpointCommitted(step=1, path="/c/1", fingerprint="f1", bytes=7, seconds=0.5),
    ev.CheckpointFailed(step=2, path="/c/2", reason="disk full"),
    ev.CheckpointCommitted(step=5, path="/c/5", fingerprint="f5", bytes=7, seconds=0.5),
    ev.CheckpointRemoved(step=1, path="/c/1"),
    ev.TrainerExited(pid=11, code=-9, reason="killed"),
]


async def write(path: Path, story: list[ev.Event]) -> None:
    journal = await Journal.open(path)
    await journal.append(story, AT)
    await journal.close()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("journal") / "journal #1?.db"  # a name that a URI has to quote
    anyio.run(write, made, STORY)
    return made


def rows(path: Path, sql: str) -> list[tuple[Any, ...]]:
    return query(path, sql).rows


# --- views --------------------------------------------------------------------------------------------------------


def test_examples_tell_what_became_of_them(path: Path) -> None:
    answer = query(path, "SELECT id, source, line, state, tokens, targets, step FROM examples ORDER BY seq")
    assert answer.columns == ["id", "source", "line", "state", "tokens", "targets", "step"]
    assert answer.rows == [
        ("a", "src", 1, "trained", 9, 4, 1),
        ("b", "src", 2, "rejected", None, None, None),
        ("c", "src", 3, "skipped", None, None, 2),
        ("d", "src", 4, "held", None, None, 3),
        ("e", "src", 5, "trained", None, None, 5),
        ("f", "src", 6, "pending", None, None, None),
    ]
    assert rows(path, "SELECT record, at, seq FROM examples WHERE id = 'a'") == [('{"text":"a"}', ISO, 4)]


def test_steps(path: Path) -> None:
    answer = query(path, "SELECT * FROM steps")
    assert answer.columns == [
        "step",
        "parent",
        "example",
        "loss",
        "lr",
        "grad_norm",
        "tokens",
        "targets",
        "fingerprint",
        "seconds",
        "applied",
        "undone",
        "at",
        "seq",
        "metrics",
    ]
    assert answer.rows[:2] == [
        (1, 0, "a", 1.5, 1e-5, 0.5, 9, 4, "0000000000000001", 0.25, 1, 0, ISO, 17, None),
        (2, 1, "c", None, 1e-5, 0.5, 9, 4, "0000000000000002", 0.25, 0, 0, ISO, 18, None),
    ]


def test_checkpoints(path: Path) -> None:
    assert rows(
        path, "SELECT step, path, state, fingerprint, bytes, seconds, reason FROM checkpoints ORDER BY seq"
    ) == [
        (1, "/c/1", "removed", "f1", 7, 0.5, None),
        (2, "/c/2", "failed", None, None, None, "disk full"),
        (5, "/c/5", "committed", "f5", 7, 0.5, None),
    ]


def test_sources(path: Path) -> None:
    assert rows(
        path, 'SELECT source, path, "offset", line, accepted, duplicates, rejected, replaces, at FROM sources'
    ) == [("src", "/in/b.jsonl", 700, 8, 6, 1, 1, "", ISO)]


def test_children(path: Path) -> None:
    assert rows(path, "SELECT child, event, pid, attempt, code, reason FROM children ORDER BY seq") == [
        ("engine", "spawned", 10, 1, None, None),
        ("trainer", "spawned", 11, 1, None, None),
        ("trainer", "exited", 11, None, -9, "killed"),
    ]


# --- events -------------------------------------------------------------------------------------------------------


def test_events_as_plain_objects(path: Path) -> None:
    (event,) = events(path, after=16, kind="step.completed", limit=1)
    assert event.pop("body")["fingerprint"] == "0000000000000001"
    assert len(event.pop("hash")) == 64
    assert event == {"seq": 17, "at_ns": AT, "kind": "step.completed", "version": 1, "key": "1"}
    assert [e["seq"] for e in events(path, limit=3)] == [1, 2, 3]
    assert {e["kind"] for e in events(path, kind="step.*")} == {"step.started", "step.completed", "step.failed"}
    assert events(path, after=10_000) == []


def test_hashes_are_hex_text(path: Path) -> None:
    ((prev, key),) = rows(path, "SELECT prev_hash, key FROM events WHERE seq = 1")
    assert (prev, key) == ("00" * 32, "")


# --- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("ATTACH '{dir}/new.db' AS n", "ATTACH"),
        ("PRAGMA writable_schema = 1", "PRAGMA"),
        ("PRAGMA query_only = 0", "PRAGMA"),
        ("SELECT * FROM pragma_table_info('events')", "may only read"),
        ("INSERT INTO meta VALUES ('a', 'b')", "INSERT"),
        ("UPDATE meta SET value = ''", "UPDATE"),
        ("DELETE FROM example_index", "DELETE"),
        ("CREATE TABLE t (x)", "INSERT sqlite_master"),
        ("CREATE TEMP TABLE t (x)", "may only read"),
        ("DROP TABLE events", "may only read"),
        ("DROP VIEW steps", "may only read"),
        ("VACUUM INTO '{dir}/copy.db'", "may only read"),
        ("VACUUM", "may only read"),
        ("BEGIN IMMEDIATE", "TRANSACTION"),
        ("WITH x AS (SELECT 1) INSERT INTO meta SELECT 'a', 'b' FROM x", "INSERT"),
        ("UPDATE sqlite_master SET sql = ''", "may not be modified"),
        ("SELECT load_extension('/tmp/x.so')", "wrong"),
        ("SELECT 1; SELECT 2", "one statement"),
        ("SELECT 1; DROP TABLE events", "one statement"),
        ("", "empty"),
        ("-- nothing", "empty"),
        ("SELEC 1", "syntax error"),
        ("SELECT * FROM nowhere", "no such table"),
        ("SELECT zeroblob(100000000)", "wrong"),
        ("SELECT '\ud800'", "UTF-8"),
        ("SELECT ?", "one statement"),
    ],
)
def test_a_query_may_only_read(path: Path, sql: str, named: str) -> None:
    before = {p.name: p.read_bytes() for p in path.parent.iterdir() if not p.name.endswith("-shm")}
    with pytest.raises(JournalError, match=named) as caught:
        query(path, sql.replace("{dir}", str(path.parent)))
    assert caught.value.hint
    assert {p.name: p.read_bytes() for p in path.parent.iterdir() if not p.name.endswith("-shm")} == before


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM events",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5) SELECT * FROM n",
        "SELECT value FROM events, json_each(events.body) LIMIT 3",
        "SELECT fullkey FROM events, json_tree(body) WHERE seq = 1",
        "SELECT example, avg(loss) OVER (ORDER BY step) FROM steps",
        "EXPLAIN QUERY PLAN SELECT * FROM examples",
        "SELECT group_concat(id, ', ') FROM examples GROUP BY state ORDER BY random()",
        "VALUES (1), (2);",
    ],
)
def test_any_way_of_reading_is_fine(path: Path, sql: str) -> None:
    assert query(path, sql).rows


def test_endless_queries_and_endless_rows_end(path: Path) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT {} FROM n"
    begin = time.monotonic()
    with pytest.raises(JournalError, match=r"longer than 0\.2 s"):
        query(path, endless.format("max(i)"), seconds=0.2)
    assert time.monotonic() - begin < 60
    answer = query(path, endless.format("i"), row_limit=10)
    assert (len(answer.rows), answer.truncated) == (10, True)
    assert not query(path, "SELECT 1", row_limit=1).truncated


# --- files --------------------------------------------------------------------------------------------------------


def test_a_running_writer_is_read_beside(tmp_path: Path) -> None:
    async def main() -> None:
        journal = await Journal.open(tmp_path / "journal.db")
        for number in range(3):
            await journal.append(STORY[number : number + 1], AT)
            assert query(journal._path, "SELECT count(*) FROM events").rows == [(number + 1,)]
        await journal.close()

    anyio.run(main)


def test_missing_empty_foreign_and_damaged_files(tmp_path: Path, path: Path) -> None:
    with pytest.raises(JournalError, match="cannot be opened"):
        verify(tmp_path / "missing.db")
    assert not (tmp_path / "missing.db").exists()
    (tmp_path / "empty.db").touch()
    with pytest.raises(JournalError, match="is empty"):
        query(tmp_path / "empty.db", "SELECT 1")
    with closing(sqlite3.connect(tmp_path / "foreign.db")) as db:
        db.execute("CREATE TABLE theirs (x)")
    with pytest.raises(JournalError, match="another program"):
        events(tmp_path / "foreign.db")
    (tmp_path / "text.db").write_text("no database, only words, and enough of them to be no header" * 9)
    with pytest.raises(JournalError, match="damaged"):
        verify(tmp_path / "text.db")


def test_a_damaged_page_is_found_with_the_last_good_event(tmp_path: Path) -> None:
    made = tmp_path / "journal.db"
    anyio.run(write, made, [ev.TrainingPaused(by="t", reason="x" * 1000)] * 400)
    data = bytearray(made.read_bytes())
    middle = len(data) // 2
    page = data.rindex(b"x" * 900, 0, middle) // PAGE * PAGE  # of rows: a page of the index is not read
    data[page : page + PAGE] = b"\xff" * PAGE
    made.write_bytes(data)
    read: list[int] = []
    with pytest.raises(JournalError, match="is damaged after event") as caught:
        read.extend(item.seq for item, _ in recorded(made))
    assert f"after event {read[-1]}, up to which it is good" in str(caught.value)
    assert read == list(range(1, read[-1] + 1)) and 100 < read[-1] < 300
    assert verified(made, 0, GENESIS, read[-1])[0] == read[-1]
    with pytest.raises(JournalError, match=f"after event {read[-1]}, "):
        verify(made)


def test_what_is_before_a_changed_event_is_told_first(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    anyio.run(write, path, [ev.TrainingPaused(by="t", reason=str(number)) for number in range(1, 351)])
    edit(path, "UPDATE events SET body = replace(body, '260', '999') WHERE seq = 260")
    read: list[int] = []
    with pytest.raises(ChainBroken, match="event 260 "):
        read.extend(item.seq for item, _ in recorded(path))
    assert read == list(range(1, 260))
    after, hash_ = verified(path, 0, GENESIS, 259)
    assert after == 259 and next(item.seq for item, _ in recorded(path, 100, verified(path, 0, GENESIS, 100)[1])) == 101
    with pytest.raises(ChainBroken, match="event 260 "):
        verified(path, after, hash_, 1)


def test_what_is_before_an_unknown_event_is_told_first(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    anyio.run(write, path, [ev.TrainingPaused(by="t")] * 5)
    append_row(path, "dream.remembered", 1, "{}")
    read: list[int] = []
    with pytest.raises(JournalError, match=r"event 6: .*dream\.remembered"):
        read.extend(item.seq for item, _ in recorded(path))
    assert read == [1, 2, 3, 4, 5]


def test_a_copy_where_nothing_may_be_written(path: Path) -> None:
    """An auditor's copy on a read-only disk: nothing can be made beside it, and nothing need be."""
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(shutil.copy(path, directory))
        copy.chmod(0o444)
        Path(directory).chmod(0o555)
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)
        try:
            assert verify(copy) is None
            assert query(copy, "SELECT count(*) FROM events").rows == [(len(STORY),)]
        finally:
            if root:
                os.seteuid(0)
        assert os.listdir(directory) == [copy.name]
        Path(directory).chmod(0o755)


def test_reading_loads_nothing_heavy() -> None:
    """`apollod ctl` comes through here."""
    heavy = "{'anyio', 'aiosqlite', 'asyncio', 'structlog'}"
    script = f"import sys, apollod.adapters.journal.journal_reader; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_what_is_only_in_the_log_is_read_also_where_nothing_may_be_written(path: Path) -> None:
    """Another user's question beside the running daemon."""
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(shutil.copy(path, directory))
        root = os.geteuid() == 0
        with closing(sqlite3.connect(copy, isolation_level=None)) as writer:
            writer.execute("SELECT count(*) FROM events").fetchall()
            append_row(copy, "training.paused", 1, "{}")
            for file in Path(directory).iterdir():
                file.chmod(0o444)
            Path(directory).chmod(0o555)
            if root:
                os.seteuid(65534)
            try:
                assert query(copy, "SELECT count(*) FROM events").rows == [(len(STORY) + 1,)]
            finally:
                if root:
                    os.seteuid(0)
                Path(directory).chmod(0o755)


def test_reading_what_a_killed_daemon_left_changes_no_byte_of_journal_and_log(path: Path, tmp_path: Path) -> None:
    """Whose log it is, and whether it is whole, only the next start checks."""
    files = [tmp_path / name for name in ("journal.db", "journal.db-wal")]
    lived = Path(shutil.copy(path, tmp_path / "lived.db"))
    with closing(sqlite3.connect(lived, isolation_level=None)) as writer:
        writer.execute("SELECT count(*) FROM events").fetchall()
        append_row(lived, "training.paused", 1, "{}")
        for file, left in zip(files, (lived, tmp_path / "lived.db-wal"), strict=True):
            shutil.copy(left, file)
    before = [file.read_bytes() for file in files]
    assert verify(files[0]) is None
    assert query(files[0], "SELECT count(*) FROM events").rows == [(len(STORY) + 1,)]
    assert [file.read_bytes() for file in files] == before
