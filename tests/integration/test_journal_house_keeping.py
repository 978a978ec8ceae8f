"""What the writer does beside the events (a snapshot, the index of examples), and what it does after a failure
there."""

import os
import resource
from pathlib import Path

import anyio
import pytest
from support.journals import AT

from apollod.adapters.journal.journal_reader import query, snapshot
from apollod.adapters.journal.writer import Journal
from apollod.core import events as ev
from apollod.errors import JournalError

pytestmark = pytest.mark.anyio
PAUSED = [ev.TrainingPaused(by="test")]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_after_an_error_of_the_disk_beside_the_events_nothing_more_is_taken(tmp_path: Path) -> None:
    """The kernel refuses to let the log grow (EFBIG), which is an I/O error to SQLite."""
    path = tmp_path / "journal.db"
    journal = await Journal.open(path)
    await journal.append(PAUSED, AT)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (os.stat(f"{path}-wal").st_size + 200_000, hard))
    try:
        journal.leave_snapshot("code", 1, b"x" * 1_000_000)
        await anyio.wait_all_tasks_blocked()
        for _ in range(2):
            with pytest.raises(JournalError, match="disk I/O error") as caught:
                await journal.append(PAUSED, AT)
            assert not caught.value.retryable and "kernel's log" in caught.value.hint
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with pytest.raises(JournalError, match="disk I/O error"):  # also when there is room again
        await journal.append(PAUSED, AT)
    await journal.close()
    journal = await Journal.open(path)
    assert [item.seq for item in await journal.append(PAUSED, AT)] == [2]
    await journal.close()


async def test_a_disk_without_room_for_a_snapshot_takes_events(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = await Journal.open(path)
    await journal.append(PAUSED, AT)
    await journal._writer.execute("PRAGMA max_page_count = 1")
    journal.leave_snapshot("code", 1, b"x" * 1_000_000)
    await anyio.wait_all_tasks_blocked()
    await journal._writer.execute("PRAGMA max_page_count = 1000000")
    assert [item.seq for item in await journal.append(PAUSED, AT)] == [2]
    await journal.close()
    assert query(path, "SELECT count(*) FROM events").rows == [(2,)] and snapshot(path, "code") is None
