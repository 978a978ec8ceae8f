"""What lies at a journal's path: symbolic links, and what is no file."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.journals import AT, opened

from apollod.adapters.journal.journal_file import free_bytes
from apollod.adapters.journal.journal_reader import query
from apollod.adapters.journal.writer import Journal
from apollod.core import events as ev
from apollod.errors import JournalError


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def lost(path: Path) -> None:
    """Events are in the log, and the journal is gone."""
    async with opened(path) as journal:
        await journal.append([ev.TrainingPaused(by="test")], AT)
        shutil.copy(f"{path}-wal", f"{path}-wal.kept")
    os.unlink(path)
    os.rename(f"{path}-wal.kept", f"{path}-wal")


def read(path: str) -> bytes:
    return Path(path).read_bytes()


@pytest.fixture
def link(tmp_path: Path) -> Path:
    """Over two links, one of them relative."""
    for name in ("real", "state"):
        (tmp_path / name).mkdir()
    (tmp_path / "real" / "hop.db").symlink_to("journal.db")
    (tmp_path / "state" / "journal.db").symlink_to(tmp_path / "real" / "hop.db")
    return tmp_path / "state" / "journal.db"


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["missing", "empty"])
async def test_a_journal_that_was_lost_behind_a_link_is_no_new_one(link: Path, tmp_path: Path, how: str) -> None:
    real = tmp_path / "real" / "journal.db"
    await lost(real)
    if how == "empty":
        real.touch()
    held = read(f"{real}-wal")
    with pytest.raises(JournalError, match=f"{real} is {how}, but its write-ahead log"):
        await Journal.open(link)
    with pytest.raises(JournalError, match=f"{real} is {how}, but its write-ahead log"):
        query(link, "SELECT 1")
    assert read(f"{real}-wal") == held and real.exists() == (how == "empty")


@pytest.mark.anyio
async def test_a_journal_behind_a_link_is_written_read_and_measured_with_its_log(link: Path, tmp_path: Path) -> None:
    async with opened(link) as journal:
        await journal.append([ev.TrainingPaused(by="test", reason="x" * 50_000)], AT)
        real = tmp_path / "real"
        assert journal.size_bytes() == (real / "journal.db").stat().st_size + (real / "journal.db-wal").stat().st_size
        assert query(link, "SELECT count(*) FROM events").rows == [(1,)]
        assert free_bytes(link) > 0
        await journal.append([ev.TrainingPaused(by="test")], AT)
        shutil.copy(real / "journal.db", tmp_path / "copy.db")
        os.unlink(link)
        os.symlink(tmp_path / "copy.db", link)
        with pytest.raises(JournalError, match="moved or removed"):
            await journal.append([ev.TrainingPaused(by="test")], AT)
    assert os.listdir(tmp_path / "state") == ["journal.db"]


@pytest.mark.parametrize(
    "make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)], ids=["pipe", "directory", "device"]
)
@pytest.mark.parametrize("verb", [["journal", "verify"], ["query", "SELECT 1"]])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, make: Any, verb: list[str]) -> None:
    make(tmp_path / "journal.db")
    done = subprocess.run(
        [sys.executable, "-m", "apollod", "ctl", *verb, "--file", str(tmp_path / "journal.db")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1
    assert "is no file (its mode is " in done.stderr and "; give the path of an apollod journal" in done.stderr
