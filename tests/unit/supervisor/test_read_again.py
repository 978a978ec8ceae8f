"""A disk that refuses a reading of the journal for a while: it is read again, and the daemon goes on."""

import sqlite3
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.journals import AT, A, accepted, opened
from support.learned_journal import write_journal

from apollod.adapters.journal import journal_connection
from apollod.adapters.journal.journal_file import explain
from apollod.core import events as ev
from apollod.errors import JournalError
from apollod.supervisor.journal_watch import Audit


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_connection, "READ_AGAIN_S", 0.0)


class Refused:
    """Readings that SQLite refuses so many times, since it cannot open the file."""

    def __init__(self, path: Path, times: int) -> None:
        self.path, self.times, self.readings = path, times, 0

    async def read(self) -> str:
        try:
            return await self.read_sqlite()
        except sqlite3.Error as error:
            raise explain(self.path, error) from error

    async def read_sqlite(self) -> str:
        self.readings += 1
        if self.readings <= self.times:
            sqlite3.connect(f"file:{self.path}/none/journal.db?mode=ro", uri=True)
        return "found"


def test_it_is_read_again_until_the_disk_answers(tmp_path: Path) -> None:
    refused = Refused(tmp_path, 3)
    assert anyio.run(journal_connection.read_again, refused.read) == "found" and refused.readings == 4


def test_a_disk_that_never_answers_is_given_up(tmp_path: Path) -> None:
    refused = Refused(tmp_path, journal_connection.READINGS)
    with pytest.raises(JournalError, match="cannot be opened"):
        anyio.run(journal_connection.read_again, refused.read)
    assert refused.readings == journal_connection.READINGS


def test_a_lookup_of_the_open_journal_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def looked_up() -> list[str]:
        async with opened(tmp_path / "journal.db") as journal:
            await journal.append([accepted(A, 1)], AT)
            refused = Refused(tmp_path, 2)
            real = journal._reader.execute_fetchall

            async def fetched(*query: Any) -> Any:
                await refused.read_sqlite()
                return await real(*query)

            monkeypatch.setattr(journal._reader, "execute_fetchall", fetched)
            return list(await journal.accepted_of([A]))

    assert anyio.run(looked_up) == [A]


def test_what_the_journal_does_not_hold_is_not_asked_for_again() -> None:
    readings = list[str]()

    async def read() -> None:
        readings.append("once")
        raise JournalError("the journal holds no anchor a", "start from a later checkpoint")

    with pytest.raises(JournalError, match="no anchor"):
        anyio.run(journal_connection.read_again, read)
    assert readings == ["once"]


def test_an_audit_waits_for_the_disk_and_finds_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_connection, "READ_AGAIN_S", 0.01)
    journal = write_journal(tmp_path / "journal.db", [ev.TrainingPaused("ctl"), ev.TrainingResumed("ctl")])
    audit = Audit(journal, 2, 2)

    async def back_after_a_while() -> None:
        away = journal.rename(tmp_path / "away.db")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(audit.run)
            await anyio.sleep(0.05)
            assert not audit.verified
            away.rename(journal)

    anyio.run(back_after_a_while)
    assert (audit.verified, audit.damage) == (2, "")
