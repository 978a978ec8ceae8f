"""What stands in lines, paths and errors from outside does not steer the terminal of whoever reads it; programs get
it as it is."""

import csv
import io
import json
from pathlib import Path

import msgspec
import pytest
from support.journals import STORY, A, completed, write

from apollod.cli.control.status_verb import page
from apollod.cli.main import main
from apollod.core import events as ev
from apollod.core.state import State
from apollod.supervisor.status_view import status_view
from apollod.wire import status as st
from apollod.wire.status import Journal

CONTROL = [chr(code) for code in (*range(0x20), 0x7F, *range(0x80, 0xA0))]
PATH = "/in/\x1b]0;mine\x07\x1b[2J\nexample     00\x9b2J.jsonl"
TEXT = "".join(reversed(CONTROL))  # where a NUL is, SQLite ends a text of JSON


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    record = msgspec.Raw(msgspec.json.encode({"text": TEXT}))
    begun, done = completed(1, 0, A, None)
    return write(tmp_path_factory.mktemp("terminal") / "journal.db", [
        *STORY[:3], ev.SourceDiscovered(source="src", path=PATH),
        ev.ExampleAccepted(example=A, record=record, source="src", line=1),
        ev.SourceConsumed(source="src", path=PATH, offset=1, line=1, accepted=1, duplicates=0, rejected=0),
        begun, msgspec.structs.replace(done, note=TEXT),
        ev.CheckpointCommitted(step=1, path=f"/c/{TEXT}", fingerprint="f", bytes=7, seconds=0.5),
        ev.CheckpointFailed(step=1, path="/c/2", reason=TEXT),
    ])  # fmt: skip


def said(capsys: pytest.CaptureFixture[str], path: Path, *args: str) -> str:
    assert main(["ctl", *args, "--file", str(path)]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "args",
    [
        ["query", "SELECT path FROM sources"], ["query", "SELECT record ->> '$.text' AS \"a\x1b[2J\" FROM examples"],
        ["query", "SELECT path, reason FROM checkpoints"], ["why", A], ["why", "1"],
        ["source", "list"], ["example", "list"], ["example", "show", A], ["replay"],
    ],
)  # fmt: skip
def test_nothing_from_outside_steers_the_terminal(
    path: Path, capsys: pytest.CaptureFixture[str], args: list[str]
) -> None:
    told = said(capsys, path, *args)
    assert told and not [c for c in CONTROL if c in told and c not in "\n\t"]


def test_a_path_cannot_add_a_line_to_an_answer(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = said(capsys, path, "why", A)
    assert r"/in/\x1b]0;mine\x07\x1b[2J\nexample     00\x9b2J.jsonl:1" in told
    assert [line.split()[0] for line in told.splitlines()].count("example") == 1
    table = said(capsys, path, "query", "SELECT path FROM sources").splitlines()
    assert table[2:] == [r"/in/\x1b]0;mine\x07\x1b[2J example 00\x9b2J.jsonl"]


def test_programs_get_it_as_it_is(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sql = "SELECT path, record ->> '$.text' AS text FROM sources JOIN examples USING (source)"
    (row,) = json.loads(said(capsys, path, "query", sql, "--json"))["rows"]
    assert row == {"path": PATH, "text": TEXT[:-1]}
    _, values = csv.reader(io.StringIO(said(capsys, path, "query", "SELECT path FROM sources", "--csv"), newline=""))
    assert values == [PATH]
    assert json.loads(said(capsys, path, "why", A, "--json"))["example"]["path"] == PATH


def test_an_error_on_the_status_page_does_not_steer_it() -> None:
    journal = Journal(seq=0, bytes=0, head_hash="")
    shown = status_view(State(), 0, journal, f"engine: {TEXT}")
    told = page(st.plain(msgspec.structs.replace(shown, paths={"inbox": TEXT}, activities={"step": TEXT})))
    assert not [c for c in CONTROL if c in told and c not in "\n\t"]


def test_an_error_that_quotes_a_path_cannot_either(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "--journal", str(tmp_path / "\x1b[2Jmine\x9b.db")]) == 1
    told = capsys.readouterr().err
    assert r"\x1b[2Jmine\x9b.db" in told and not [c for c in CONTROL if c in told and c != "\n"]
