"""The journal on a real disk: durable, in order, without gaps, chained, and never overwritten."""

import inspect
import os
import random
import resource
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from hashlib import blake2b
from pathlib import Path

import anyio
import msgspec
import pytest
from support.journals import edit, opened, paused, shell

from apollod.adapters.journal import known_examples, row_batch
from apollod.adapters.journal.journal_reader import recorded, snapshot, verify
from apollod.adapters.journal.verification import derived_damage
from apollod.adapters.journal.writer import Journal
from apollod.core import events as ev
from apollod.core.facts.intake.repeats import SCHEME
from apollod.errors import JournalError
from apollod.wire.event_codec import chain

pytestmark = pytest.mark.anyio
AT = 1_700_000_000_123_456_789


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def accepted(name: str) -> ev.ExampleAccepted:
    return ev.ExampleAccepted(example=name, record=msgspec.Raw(b'{"text":"%s"}' % name.encode()), source="s", line=1)


def everything(path: Path) -> list[ev.Recorded]:
    return [item for item, _ in recorded(path)]


def reasons(items: list[ev.Recorded]) -> list[str]:
    return [item.event.reason for item in items if isinstance(item.event, ev.TrainingPaused)]


async def filled(path: Path, count: int) -> None:
    async with opened(path) as journal:
        await journal.append([paused(n) for n in range(1, count + 1)], AT)


# --- appending and reading ----------------------------------------------------------------------------------------


async def test_what_was_appended_is_read_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with opened(path) as journal:
        assert journal.head == (0, "00" * 32)
        assert await journal.append([], AT) == []
        first = await journal.append([paused(1), accepted("a")], AT)
        second = await journal.append([paused(2)], AT + 1)
        assert [r.seq for r in first + second] == [1, 2, 3]
        assert everything(path) == first + second
        head = journal.head
        assert journal.size_bytes() > 4096
    assert not (tmp_path / "journal.db-wal").exists()
    async with opened(path) as journal:
        assert journal.head == head
        assert everything(path) == first + second
    assert verify(path) is None


async def test_the_writers_own_connection_syncs_each_commit_to_a_write_ahead_log(tmp_path: Path) -> None:
    """No crash of a process shows the difference, a power cut does. Both are a connection's own: another one says
    nothing of them."""
    async with opened(tmp_path / "journal.db") as journal:
        await journal.append([paused(1)], AT)
        for name, in_force in (("synchronous", 2), ("journal_mode", "wal")):  # 2: FULL
            assert list(await journal._writer.execute_fetchall(f"PRAGMA {name}")) == [(in_force,)], name


async def test_known_examples_and_their_records(tmp_path: Path) -> None:
    async with opened(tmp_path / "journal.db") as journal:
        await journal.append([accepted("a"), paused(1), accepted("b")], AT)
        assert await journal.known(["a", "x", "b"]) == {"a", "b"}
        assert await journal.known([]) == set()
        assert await journal.records_of(["b", "a", "x"]) == {"a": b'{"text":"a"}', "b": b'{"text":"b"}'}


async def test_64_writers_get_gapless_numbers_in_the_order_of_their_calls(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    calls: list[int] = []
    answers: dict[int, list[ev.Recorded]] = {}

    async def write(writer: int) -> None:
        for number in range(20):
            call = writer * 1000 + number
            calls.append(call)
            answers[call] = await journal.append([paused(call)] * (1 + call % 3), AT)

    async with opened(path) as journal:
        async with anyio.create_task_group() as tasks:
            for writer in range(64):
                tasks.start_soon(write, writer)
        read = everything(path)
    assert [r.seq for r in read] == list(range(1, len(read) + 1))
    assert reasons(read) == [str(call) for call in calls for _ in range(1 + call % 3)]
    assert read == [item for call in calls for item in answers[call]]
    assert verify(path) is None


async def test_no_caller_goes_on_while_the_disk_does_not_answer(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    done: list[int] = []

    async def write(number: int) -> None:
        await journal.append([paused(number)], AT)
        done.append(number)

    async with opened(path) as journal:
        async with anyio.create_task_group() as tasks:
            with shell(path) as db:
                db.execute("BEGIN IMMEDIATE")
                for number in range(50):
                    tasks.start_soon(write, number)
                await anyio.sleep(0.1)
                assert done == []
                db.execute("ROLLBACK")
        assert done == list(range(50))
        assert reasons(everything(path)) == [str(n) for n in range(50)]


async def test_a_batch_of_more_rows_than_a_statement_takes_is_one_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_batch, "STATEMENT_ROWS_MAX", 7)
    path = tmp_path / "journal.db"
    async with opened(path) as journal:
        await journal.append([paused(n) for n in range(20)], AT)
        await limit_pages(journal, 1)
        with pytest.raises(JournalError, match="disk is full"):  # within the second statement at the earliest
            await journal.append(
                [paused(n) for n in range(6)] + [ev.TrainingPaused(by="test", reason="x" * 100_000)] * 9, AT
            )
        await limit_pages(journal, 1_000_000)
        assert [r.seq for r in await journal.append([paused(n) for n in range(20, 40)], AT)] == list(range(21, 41))
    assert reasons(everything(path)) == [str(n) for n in range(40)]
    assert verify(path) is None


# --- which examples are known -------------------------------------------------------------------------------------


def ids(first: int, last: int) -> list[str]:
    return [blake2b(b"%d" % n, digest_size=16).hexdigest() for n in range(first, last)]


def indexed(path: Path) -> tuple[int, int]:
    """Rows in the index, and up to which event it is said to be complete."""
    with shell(path) as db:
        return db.execute(
            "SELECT (SELECT count(*) FROM example_index), (SELECT value + 0 FROM meta WHERE key = 'indexed_seq')"
        ).fetchone()


async def test_examples_stay_known_while_they_move_to_the_index_and_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_examples, "RECENT_MAX", 20)
    monkeypatch.setattr(known_examples, "SLICE", 6)
    path, seen, between = tmp_path / "journal.db", set(), 0
    journal = await Journal.open(path)
    for number, id_ in enumerate(ids(0, 100), 1):
        assert await journal.known([id_]) == set()
        await journal.append([accepted(id_)], AT)
        assert await journal.known(ids(0, 100)) == set(ids(0, number))
        rows, complete = indexed(path)
        assert rows >= complete, "the index is said to hold what it does not"
        between += rows > complete
        if (
            number == 70
        ):  # the rest of the life is that of a successor; what the first one left is never closed properly
            shutil.copytree(tmp_path, tmp_path / "crashed")
            seen = set(journal_reader_ids(path))
            await journal.close()
            journal = await Journal.open(tmp_path / "crashed" / "journal.db")
            path = tmp_path / "crashed" / "journal.db"
            assert seen == set(ids(0, 70)) == await journal.known(ids(0, 100))
    assert between, "no crash could have come in the middle of a move"
    old_and_new = ids(0, 3) + ids(97, 100)
    assert await journal.records_of([*old_and_new, "x"]) == {
        id_: b'{"text":"%s"}' % id_.encode() for id_ in old_and_new
    }
    await journal.close()
    assert sorted(journal_reader_ids(path)) == sorted(ids(0, 100))


def journal_reader_ids(path: Path) -> list[str]:
    """As somebody with SQL sees them: each once."""
    with shell(path) as db:
        found = db.execute("SELECT k.id, e.key FROM known_examples AS k JOIN events AS e USING (seq)").fetchall()
    assert all(id_ == key for id_, key in found)
    return [id_ for id_, _ in found]


# --- snapshots ----------------------------------------------------------------------------------------------------


async def test_a_snapshot_is_read_by_its_code_only_and_not_after_a_change(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with opened(path) as journal:
        assert snapshot(path, "code") is None
        for number in range(1, 5):
            await journal.append([paused(number)], AT)
            journal.leave_snapshot("code", number, b"state %d" % number)
    assert (snapshot(path, "code").seq, snapshot(path, "code").state) == (4, b"state 4")
    assert snapshot(path, "other") is None
    after = [item.seq for item, _ in recorded(path, *snapshot(path, "code")[:2])]
    async with opened(path) as journal:
        await journal.append([paused(5)], AT)
    assert after == [] and [item.seq for item, _ in recorded(path, *snapshot(path, "code")[:2])] == [5]
    with shell(path) as db:
        assert db.execute("SELECT seq FROM snapshots").fetchall() == [(3,), (4,)]
        db.execute("UPDATE snapshots SET state = x'00' WHERE seq = 4")
    assert snapshot(path, "code").seq == 3
    edit(path, "UPDATE events SET hash = zeroblob(32) WHERE seq = 3")
    assert snapshot(path, "code") is None


async def test_an_event_is_not_seen_before_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path / "journal.db") as journal:
        insert = journal._insert
        seen: list[set[str]] = []

        async def slow_insert(values: list[object]) -> None:
            seen.append(await journal.known(["a"]))
            await insert(values)

        monkeypatch.setattr(journal, "_insert", slow_insert)
        await journal.append([accepted("a")], AT)
        assert seen == [set()]
        assert await journal.known(["a"]) == {"a"}


async def test_a_cancelled_caller_does_not_disturb_the_others(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with opened(path) as journal:
        with shell(path) as db:
            db.execute("BEGIN IMMEDIATE")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(journal.append, [paused(1)], AT)
                await anyio.sleep(0.05)
                tasks.cancel_scope.cancel()
            db.execute("ROLLBACK")
        (last,) = await journal.append([paused(2)], AT)
        assert reasons(everything(path)) == ["1", "2"]
        assert last.seq == 2


async def test_after_close_appends_are_refused_and_what_waited_is_written(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = await Journal.open(path)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(journal.append, [paused(1)], AT)
        await anyio.wait_all_tasks_blocked()
        await journal.close()
    await journal.close()
    with pytest.raises(JournalError, match="closed"):
        await journal.append([paused(2)], AT)
    async with opened(path) as journal:
        assert reasons(everything(path)) == ["1"]


async def test_the_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        async with opened(tmp_path / "journal.db") as journal:
            await journal.append([paused(1)], AT)
            modes = {name: stat.S_IMODE(os.stat(tmp_path / name).st_mode) for name in os.listdir(tmp_path)}
            assert modes == {"journal.db": 0o600, "journal.db-wal": 0o600, "journal.db-shm": 0o600}
    finally:
        os.umask(previous)


# --- failing ------------------------------------------------------------------------------------------------------


async def limit_pages(journal: Journal, pages: int) -> None:
    """Let SQLite believe that the disk ends there: the real SQLITE_FULL."""
    await journal._writer.execute(f"PRAGMA max_page_count = {pages}")


async def test_a_full_disk_fails_the_batch_and_loses_nothing_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    big = ev.TrainingPaused(by="test", reason="x" * 100_000)
    async with opened(path) as journal:
        await journal.append([paused(1)], AT)
        head = journal.head
        await limit_pages(journal, 1)
        outcomes: list[BaseException | list[ev.Recorded]] = []

        async def write() -> None:
            try:
                outcomes.append(await journal.append([big], AT))
            except JournalError as error:
                outcomes.append(error)

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(write)
        assert len(outcomes) == 5
        for error in outcomes:
            assert isinstance(error, JournalError)
            assert "disk is full" in error.line() and error.retryable
        assert journal.head == head
        await limit_pages(journal, 1_000_000)
        assert [r.seq for r in await journal.append([paused(2)], AT)] == [2]
    assert verify(path) is None


async def test_a_foreign_lock_is_named_and_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal.db"
    async with opened(path) as journal:
        await journal._writer.execute("PRAGMA busy_timeout = 50")
        with shell(path) as db:
            db.execute("BEGIN IMMEDIATE")
            with pytest.raises(JournalError, match="another process") as caught:
                await journal.append([paused(1)], AT)
            assert caught.value.retryable
        assert (await journal.append([paused(2)], AT))[0].seq == 1


async def test_a_second_writer_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with opened(path) as one, opened(path) as two:
        await one.append([paused(1)], AT)
        for _ in range(2):  # it does not heal by itself: memory and journal disagree
            with pytest.raises(JournalError):
                await two.append([paused(2)], AT)
        with pytest.raises(JournalError, match="does not know") as caught:
            await two.append([paused(3)], AT)
        assert "restart" in caught.value.hint
        await one.append([paused(4)], AT)
    assert verify(path) is None


async def test_an_event_that_cannot_be_recorded_harms_only_its_caller(tmp_path: Path) -> None:
    async with opened(tmp_path / "journal.db") as journal:
        broken = ev.TrainingPaused(by="test", reason="\ud800")
        with pytest.raises(JournalError, match="cannot be recorded"):
            await journal.append([broken], AT)
        assert (await journal.append([paused(1)], AT))[0].seq == 1


WRITER = """
import asyncio, sys
from apollod.adapters.journal.writer import Journal
from apollod.core.events import TrainingPaused

async def write(journal, writer):
    while True:
        (recorded,) = await journal.append([TrainingPaused(by="w", reason=str(writer))], 1)
        sys.stdout.write(f"{recorded.seq}\\n")
        sys.stdout.flush()

async def main():
    journal = await Journal.open(sys.argv[1])
    await asyncio.gather(*(write(journal, n) for n in range(16)))

asyncio.run(main())
"""


async def sequence(path: Path) -> list[int]:
    async with opened(path):
        return [r.seq for r in everything(path)]


@pytest.mark.crash
def test_no_acknowledged_event_is_lost_when_the_writer_is_killed(tmp_path: Path) -> None:
    path, out = tmp_path / "journal.db", tmp_path / "out"
    acknowledged = 0
    rng = random.Random(7)
    for _ in range(5):
        with out.open("wb") as stdout:
            writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=stdout)
            while not out.stat().st_size and writer.poll() is None:
                time.sleep(0.01)
            time.sleep(rng.uniform(0.0, 0.2))
            writer.send_signal(signal.SIGKILL)
            assert writer.wait() == -signal.SIGKILL
        lines = out.read_text().split("\n")[:-1]  # after the last newline lies what was cut off
        acknowledged = max(acknowledged, *map(int, lines))
        seqs = anyio.run(sequence, path)
        assert seqs == list(range(1, len(seqs) + 1))
        assert len(seqs) >= acknowledged
        assert verify(path) is None
    assert acknowledged > 100


# --- what was done to the file ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement", ["UPDATE events SET body = '{}' WHERE seq = 2", "DELETE FROM events WHERE seq = 2"]
)
async def test_events_are_append_only_also_for_a_person(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "journal.db"
    await filled(path, 4)
    with shell(path) as db, pytest.raises(sqlite3.IntegrityError, match="append-only"):
        db.execute(statement)
    assert verify(path) is None


@pytest.mark.parametrize(
    ("statement", "first_bad"),
    [
        ("""UPDATE events SET body = replace(body, '"3"', '"x"') WHERE seq = 3""", 3),
        ("UPDATE events SET at_ns = at_ns + 1 WHERE seq = 4", 4),
        ("UPDATE events SET kind = 'training.resumed' WHERE seq = 1", 1),
        ("UPDATE events SET key = 'k' WHERE seq = 5", 5),
        ("UPDATE events SET hash = zeroblob(32) WHERE seq = 6", 6),
        ("DELETE FROM events WHERE seq = 2", 2),
        ("DELETE FROM events WHERE seq <= 2", 1),
        ("UPDATE events SET seq = 60 WHERE seq = 6", 6),
    ],
)
async def test_edits_are_found_and_not_read(tmp_path: Path, statement: str, first_bad: int) -> None:
    path = tmp_path / "journal.db"
    await filled(path, 6)
    edit(path, statement)
    assert verify(path) == first_bad
    with pytest.raises(JournalError, match=r"event \d+ is missing or does not match its hash"):
        async with opened(path):
            _ = everything(path)


async def test_a_gap_is_found_also_where_somebody_chained_it_anew(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    await filled(path, 4)
    edit(path, "DELETE FROM events WHERE seq = 4")
    with shell(path) as db:
        ((prev, kind, body),) = db.execute("SELECT hash, kind, body FROM events WHERE seq = 3").fetchall()
        row = (5, AT, kind, 1, "", body, prev, chain(prev, 5, AT, kind, 1, "", body.encode()))
        db.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    assert verify(path) == 4
    for reading in (everything, Journal.open):
        with pytest.raises(JournalError, match="event 4 is missing"):
            found = reading(path)
            await found if inspect.isawaitable(found) else found


async def test_a_kind_from_a_newer_apollod_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal.db"
    monkeypatch.setattr(ev.TrainingPaused, "version", 2)
    await filled(path, 1)
    monkeypatch.undo()
    async with opened(path):
        with pytest.raises(JournalError, match=r"event 1: the event training\.paused has version 2"):
            _ = everything(path)


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.95])
async def test_a_truncated_file_is_refused_and_left_alone(tmp_path: Path, keep: float) -> None:
    path = tmp_path / "journal.db"
    async with opened(path) as journal:
        for _ in range(20):
            await journal.append([ev.TrainingPaused(by="t", reason="x" * 2000)] * 20, AT)
    os.truncate(path, int(path.stat().st_size * keep))
    before = path.read_bytes()
    with pytest.raises(JournalError, match="damaged") as caught:
        async with opened(path):
            _ = everything(path)
    assert "restore a backup" in caught.value.hint
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"hello, this is no database\n", b"\x00" * 9000])
async def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "journal.db"
    path.write_bytes(content)
    with pytest.raises(JournalError, match="not a SQLite database"):
        await Journal.open(path)
    assert path.read_bytes() == content


async def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with shell(path) as db:
        db.execute("CREATE TABLE theirs (x)")
    before = path.read_bytes()
    with pytest.raises(JournalError, match="of another program"):
        await Journal.open(path)
    assert path.read_bytes() == before


async def test_a_missing_directory_says_so(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"cannot be opened for writing: No such file"):
        await Journal.open(tmp_path / "no" / "journal.db")


async def test_a_file_that_may_not_be_written_says_so() -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "journal.db"
        await filled(path, 1)
        os.chmod(path, 0o444)
        os.chmod(directory, 0o755)
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)
        try:
            with pytest.raises(JournalError, match="cannot be opened for writing: Permission denied"):
                await Journal.open(path)
        finally:
            if root:
                os.seteuid(0)


async def test_after_a_failed_write_nothing_is_written_until_a_new_start_reads_the_disk(tmp_path: Path) -> None:
    """The kernel refuses to let the log grow once. Whether it then has what SQLite believes to be there is not
    known."""
    path, log = tmp_path / "journal.db", tmp_path / "journal.db-wal"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with opened(path) as journal:
        await journal.append([paused(1)], AT)
        resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size + 100_000, limits[1]))
        try:
            with pytest.raises(JournalError, match="disk I/O error"):
                await journal.append([ev.TrainingPaused(by="test", reason="x" * 500_000)], AT)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        failed = path.read_bytes(), log.read_bytes()
        for _ in range(2):
            with pytest.raises(JournalError, match="disk I/O error") as caught:
                await journal.append([paused(2)], AT)
            assert not caught.value.retryable
        assert (path.read_bytes(), log.read_bytes()) == failed
    assert (path.read_bytes(), log.read_bytes()) == failed
    async with opened(path) as journal:
        await journal.append([paused(3)], AT)
        assert reasons(everything(path)) == ["1", "3"]


async def test_of_an_append_with_an_event_that_cannot_be_recorded_nothing_is(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with opened(path) as journal:
        with pytest.raises(JournalError, match="cannot be recorded"):
            await journal.append([paused(1), ev.TrainingPaused(by="test", reason="\ud800")], AT)
        assert [r.seq for r in await journal.append([paused(2)], AT)] == [1]
        assert reasons(everything(path)) == ["2"]


@pytest.mark.timeout(20)
async def test_a_snapshot_that_was_left_right_before_a_failed_write_is_dropped_and_nothing_hangs(
    tmp_path: Path,
) -> None:
    path, log = tmp_path / "journal.db", tmp_path / "journal.db-wal"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with opened(path) as journal:
        await journal.append([paused(1)], AT)
        begun = time.monotonic()
        resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size + 100_000, limits[1]))
        try:
            journal.leave_snapshot("code", 1, b"state")
            with pytest.raises(JournalError, match="disk I/O error"):
                await journal.append([ev.TrainingPaused(by="test", reason="x" * 500_000)], AT)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        failed = log.read_bytes()
        await anyio.sleep(0.1)
        assert time.monotonic() - begun < 10, "the event loop stood still"
    assert log.read_bytes() == failed and snapshot(path, "code") is None


async def test_answers_and_signatures_stay_known_while_they_move_and_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_examples, "RECENT_MAX", 20)
    monkeypatch.setattr(known_examples, "SLICE", 6)
    path, names = tmp_path / "journal.db", ids(0, 40)
    keys = {name: (f"{name}-1", f"{name}-2") for name in names}
    signed = {name: SCHEME + b64encode(blake2b(name.encode()).digest() * 2).decode() for name in names}
    journal = await Journal.open(path)
    for number, name in enumerate(names, 1):
        assert await journal.learned_by(keys[name]) == {} and await journal.like([signed[name]]) == {}
        event = msgspec.structs.replace(accepted(name), responses=keys[name], signature=signed[name])
        await journal.append([event], AT)
        so_far = names[:number]
        known = {key: name for name in so_far for key in keys[name]}
        assert await journal.learned_by([key for both in keys.values() for key in both]) == known
        assert await journal.like(signed.values()) == {name: signed[name] for name in so_far}
        if number == 25:
            shutil.copytree(tmp_path, tmp_path / "crashed")
            await journal.close()
            path = tmp_path / "crashed" / "journal.db"
            journal = await Journal.open(path)
    await journal.close()
    assert derived_damage(path) is None
    with shell(path) as db:
        ((rows,),) = db.execute("SELECT count(*) FROM response_index").fetchall()
        assert rows > 40
        db.execute("DELETE FROM response_index")
    found = derived_damage(path)
    assert found is not None and "an answer that event 1 says is missing" in str(found)
