"""`ctl replay` and `journal verify` walk the same chain: good up to a break, and not a step beyond it."""

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from support.journals import accepted, write

from apollod.adapters.journal import journal_reader
from apollod.errors import JournalError

EVENTS, BAD = 6, 4


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return write(tmp_path / "journal.db", [accepted(f"{n:032x}", n) for n in range(1, EVENTS + 1)])


def break_it(path: Path, how: str) -> None:
    with sqlite3.connect(path) as db:
        for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            db.execute(f"DROP TRIGGER {name}")
        db.execute(
            f"UPDATE events SET at_ns = 7 WHERE seq = {BAD}"
            if how == "edited"
            else f"DELETE FROM events WHERE seq = {BAD}"
        )


def replay(path: Path, *args: str) -> "subprocess.CompletedProcess[str]":
    # the journal of a state directory, as a configuration names it
    config = path.parent / "a.toml"
    config.write_text(f'[model]\npath = "/m"\n[state]\ndir = "{path.parent}"\n')
    command = [sys.executable, "-m", "apollod", "ctl", "replay", "--json", "--config", str(config), *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_an_intact_journal_is_folded_to_its_end_or_up_to_an_event(journal):
    whole = json.loads(replay(journal).stdout)
    assert whole["replayed"] == EVENTS and whole["queue"]["accepted"] == EVENTS
    part = json.loads(replay(journal, "--to", "2").stdout)
    assert part["replayed"] == 2 and part["queue"]["accepted"] == 2
    _, head = list(journal_reader.recorded(journal))[1]
    assert part["journal"]["head_hash"] == head.hex() != whole["journal"]["head_hash"]
    beyond = replay(journal, "--to", "7")
    assert beyond.returncode == 1 and "ends at event 6" in beyond.stderr


@pytest.mark.parametrize("how", ["edited", "deleted"])
def test_a_break_is_named_and_what_is_before_it_can_be_folded(journal, how):
    break_it(journal, how)
    assert journal_reader.verify(journal) == BAD
    with pytest.raises(JournalError, match=f"event {BAD} is missing or does not match"):
        list(journal_reader.recorded(journal))
    refused = replay(journal)
    assert refused.returncode == 1 and f"event {BAD}" in refused.stderr and refused.stdout == ""
    assert json.loads(replay(journal, "--to", str(BAD - 1)).stdout)["replayed"] == BAD - 1
