"""`apollod ctl journal verify`: what it says of the chain and of what is derived from the events."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.journals import STORY, shell, write

from apollod.adapters import journal_reader
from apollod.cli.main import main


def verify(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict[str, Any]]:
    code = main(["ctl", "journal", "verify", "--json", "--file", str(path), *options])
    out = capsys.readouterr().out
    return code, json.loads(out) if out else {}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "journal.db", STORY)


# --- the chain ----------------------------------------------------------------------------------------------------


def test_an_event_that_comes_during_the_walk_is_not_proclaimed(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    good, walk = verify(path, capsys), journal_reader.chained

    def disturbed(*args: Any) -> Iterator[Any]:
        yield from walk(*args)
        with shell(path) as db:  # here one that somebody forged
            db.execute(
                "INSERT INTO events SELECT (SELECT max(seq) + 1 FROM events), at_ns, kind, version, key, body, prev_hash, zeroblob(32) "
                "FROM events WHERE seq = 1"
            )

    monkeypatch.setattr(journal_reader, "chained", disturbed)
    assert good == (0, good[1] | {"ok": True, "first_bad": None, "events": len(STORY)})
    assert verify(path, capsys, "--expect", "0" * 64)[1] == {**good[1], "ok": False, "expected": None}
    monkeypatch.undo()
    assert verify(path, capsys)[1]["first_bad"] == len(STORY) + 1


def test_of_a_broken_chain_only_what_is_good_is_counted(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ((head,),) = journal_reader.query(path, "SELECT hash FROM events WHERE seq = 7").rows
    with shell(path) as db:
        db.execute("DROP TRIGGER events_unchanged")
        db.execute("UPDATE events SET at_ns = 1 WHERE seq = 8")
    code, answer = verify(path, capsys, "--expect", head)
    assert code == 1 and not answer["ok"] and answer["first_bad"] == 8
    assert (answer["events"], answer["head_hash"], answer["expected"]) == (7, head, {"seq": 7, "after": 0})
