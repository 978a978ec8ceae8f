"""Examples that a client has tokenised: what becomes of them in a whole daemon."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands import ran
from support.daemon import Daemon
from support.invariants import check_stopped, journal_of
from support.replayed import replay

from apollod.core import events as ev

GIVEN = {"prompt_token_ids": [5, 6, 7, 8], "token_ids": [9, 10, 11]}


@pytest.fixture
def daemon(tmp_path: Path, smaller_model: Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path / "d", smaller_model)
    with made.serving():
        yield made


def test_they_are_learned_shown_replayed_and_exported_as_any_other(
    daemon: Daemon, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "given.jsonl"
    file.write_text(f"{json.dumps(GIVEN)}\n")
    daemon.ctl("submit", str(file), "--wait")
    ((example,),) = daemon.query("SELECT id FROM examples")
    assert daemon.status()["step"] == 1
    after = daemon.status()["weights"]["fingerprint"]
    (encoded,) = [one for one in journal_of(daemon) if isinstance(one, ev.ExampleEncoded)]
    assert (encoded.tokens, encoded.targets) == (7, 3)
    shown = ran("ctl", "example", "show", example, "--file", daemon.journal).stdout
    assert "5 6 7 8" in shown and "9 10 11" in shown
    beyond = tmp_path / "beyond.jsonl"
    beyond.write_text(json.dumps({**GIVEN, "token_ids": [9, 1 << 30]}) + "\n")
    daemon.ctl("submit", str(beyond), "--wait")
    (rejected,) = [one for one in journal_of(daemon) if isinstance(one, ev.ExampleRejected)]
    assert f"it has token {1 << 30}, the model has" in rejected.reason
    daemon.stop()
    check_stopped(daemon)
    _, replayed = replay(capsys, daemon.journal)
    assert replayed["fingerprint"] == after
    exported = ran("ctl", "export", "--file", daemon.journal, "--format", "trl").stdout
    assert [json.loads(row) for row in exported.splitlines()] == [GIVEN]
