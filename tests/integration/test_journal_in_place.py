"""A journal whose files are moved or removed while it is open: nothing that was confirmed is lost without a word."""

import shutil
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from support.daemon import Daemon
from support.journals import AT, opened, paused, shell

from apollod.adapters.journal.journal_reader import query
from apollod.adapters.journal.writer import Journal
from apollod.errors import JournalError


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def reasons(path: Path) -> list[str]:
    return [reason for (reason,) in query(path, "SELECT body ->> '$.reason' FROM events ORDER BY seq").rows]


def renamed(path: Path, name: str) -> None:
    path.with_name(name).rename(path.with_name(f"{name}.old"))


@pytest.mark.anyio
@pytest.mark.parametrize(
    "lose",
    [
        lambda path: renamed(path, "journal.db"),
        lambda path: renamed(path, "journal.db-wal"),
        lambda path: path.unlink(),
        lambda path: path.with_name("journal.db-wal").unlink(),
        lambda path: shutil.rmtree(path.parent),
        lambda path: (shutil.copy(path, path.with_name("backup")), path.with_name("backup").rename(path)),
    ],
    ids=["renamed", "log renamed", "removed", "log removed", "directory removed", "backup in its place"],
)
async def test_a_journal_that_is_lost_while_it_is_open_takes_nothing_more(
    tmp_path: Path, lose: Callable[[Path], object]
) -> None:
    """SQLite would go on writing into the file that it has open, which nobody finds at the next start."""
    path = tmp_path / "state" / "journal.db"
    path.parent.mkdir()
    journal = await Journal.open(path)
    await journal.append([paused(1)], AT)
    lose(path)
    for _ in range(2):
        with pytest.raises(JournalError, match="moved or removed while it was open") as caught:
            await journal.append([paused(2)], AT)
        assert not caught.value.retryable and "put both back" in caught.value.hint
        assert journal.head[0] == 1
    await journal.close()


@pytest.mark.anyio
async def test_a_journal_that_is_lost_during_a_commit_acknowledges_nothing(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = await Journal.open(path)
    with shell(path) as db:
        db.execute("BEGIN IMMEDIATE")
        async with anyio.create_task_group() as tasks:

            async def write() -> None:
                with pytest.raises(JournalError, match="moved or removed"):
                    await journal.append([paused(1)], AT)

            tasks.start_soon(write)
            await anyio.sleep(0.1)  # the commit waits for the lock
            renamed(path, "journal.db")
            db.execute("ROLLBACK")
    await journal.close()


@pytest.mark.anyio
async def test_a_journal_that_was_put_back_has_everything_that_was_confirmed(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = await Journal.open(path)
    await journal.append([paused(1)], AT)
    for name in ("journal.db", "journal.db-wal"):
        renamed(path, name)
    with pytest.raises(JournalError, match="moved or removed"):
        await journal.append([paused(2)], AT)
    await journal.close()
    for name in ("journal.db", "journal.db-wal"):
        path.with_name(f"{name}.old").rename(path.with_name(name))
    async with opened(path):
        assert reasons(path) == ["1"]


@pytest.mark.anyio
async def test_at_its_end_a_journal_leaves_the_log_of_the_one_in_its_place_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = await Journal.open(path)
    await journal.append([paused(1)], AT)
    for name in ("journal.db", "journal.db-wal", "journal.db-shm"):
        renamed(path, name)
    async with opened(path) as other:
        await other.append([paused(2)], AT)
        with pytest.raises(JournalError, match="moved or removed"):
            await journal.close()
        assert path.with_name("journal.db-wal").exists()
        await other.append([paused(3)], AT)
    assert reasons(path) == ["2", "3"]


def test_a_daemon_whose_journal_is_moved_ends_with_its_reason_and_the_way_back_has_everything(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, tmp_path / "no-model").start()
    try:
        daemon.wait(lambda s: s["error"], "up", 180)
        file = tmp_path / "more.jsonl"
        file.write_text('{"text": "a line"}\n')
        assert daemon.ctl("submit", str(file)).returncode == 0
        files = [daemon.journal, Path(f"{daemon.journal}-wal")]
        for one in files:
            renamed(one, one.name)
        file.write_text('{"text": "another line"}\n')
        assert daemon.ctl("submit", str(file), check=False).returncode != 0
        assert daemon.process.wait(30) == 1, "nobody is served"
        last = daemon.log().splitlines()[-1]
        assert (
            last.startswith("apollod: ")
            and "was moved or removed while it was open" in last
            and "Traceback" not in daemon.log()
        )
        for one in files:
            one.with_name(f"{one.name}.old").rename(one)
        daemon.start()
        daemon.wait(lambda s: s["error"], "up again", 180)
        assert daemon.query("SELECT count(*) FROM events WHERE body LIKE '%a line%'") == [(1,)]
        assert daemon.ctl("journal", "verify").returncode == 0
    finally:
        if daemon.alive():
            daemon.stop()
