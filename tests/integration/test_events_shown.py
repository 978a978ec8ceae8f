"""Text from files cannot steer the terminal of whoever looks at the events."""

import json
from pathlib import Path

import pytest
from support.journals import write

from apollod.cli.main import main
from apollod.core import events as ev

EVIL = "/in/\x1b]0;pwned\x07\x1b[2J\x9b2J.jsonl"


def test_a_name_with_control_characters_is_shown_as_what_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "journal.db", [ev.SourceDiscovered(source="src", path=EVIL)])
    assert main(["ctl", "events", "--file", str(path)]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.isprintable() and r"path=/in/\x1b]0;pwned\x07\x1b[2J\x9b2J.jsonl" in line
    assert main(["ctl", "events", "--jsonl", "--file", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["body"]["path"] == EVIL
