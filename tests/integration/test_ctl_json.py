"""What `apollod ctl events|query --json` prints is one JSON object, whatever was asked."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.journals import STORY, accepted, append_row, write

from apollod.cli.main import main
from apollod.core import events as ev

Ctl = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def ctl(tmp_path: Path) -> Ctl:
    """`apollod ctl` on a journal without a daemon."""
    (tmp_path / "apollod.toml").write_text(f'[state]\ndir = "{tmp_path}"\n[model]\npath = "{tmp_path}/m"\n')
    write(tmp_path / "journal.db", STORY)

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "apollod", "ctl", *arguments, "--config", str(tmp_path / "apollod.toml")]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=os.environ)

    return run


def strict(text: str) -> Any:
    """JSON as its standard has it, and no key twice."""

    def no(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    return json.loads(text, parse_constant=no, object_pairs_hook=once)


def test_infinite_numbers_are_told_as_strings(ctl: Ctl) -> None:
    done = ctl(
        "query", "SELECT 9e999 AS a, -9e999 AS b, NULL AS c, 9e999 - 9e999 AS d, 1.5 AS e, 'Infinity' AS f", "--json"
    )
    assert done.returncode == 0
    assert strict(done.stdout)["rows"] == [
        {"a": "Infinity", "b": "-Infinity", "c": None, "d": None, "e": 1.5, "f": "Infinity"}
    ]


def test_columns_of_one_name_are_all_there(ctl: Ctl) -> None:
    sql = 'SELECT 1 AS a, 2 AS a, 3 AS b, 4 AS "a:1", 5 AS a'
    answer = strict(ctl("query", sql, "--json").stdout)
    assert answer["columns"] == ["a", "a:1", "b", "a:1:1", "a:2"]
    assert answer["rows"] == [{"a": 1, "a:1": 2, "b": 3, "a:1:1": 4, "a:2": 5}]
    assert ctl("query", sql, "--csv").stdout.split() == ["a,a,b,a:1,a", "1,2,3,4,5"], "a table needs no keys"


def test_one_object_of_what_never_ends_is_refused(ctl: Ctl) -> None:
    done = ctl("events", "--follow", "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and "--jsonl" in done.stderr
    assert len(strict(ctl("events", "--json", "--limit", "3").stdout)["events"]) == 3


@pytest.mark.parametrize("form", ["--json", "--csv", None])
def test_whoever_gets_only_some_of_the_rows_is_told_so(ctl: Ctl, form: str | None) -> None:
    for limit, cut in ((2, True), (3, False)):
        done = ctl("query", "VALUES (1), (2), (3)", "--limit", str(limit), *([form] if form else []))
        assert done.returncode == 0 and (f"only the first {limit} rows" in done.stderr) == cut == bool(done.stderr)
        if form == "--json":
            assert strict(done.stdout)["truncated"] is cut


def test_events_after_one_of_a_kind_as_many_as_asked_for(ctl: Ctl, tmp_path: Path) -> None:
    def seqs(*arguments: str) -> list[int]:
        return [json.loads(line)["seq"] for line in ctl("events", "--jsonl", *arguments).stdout.splitlines()]

    steps = [seq for seq, event in enumerate(STORY, 1) if event.kind.startswith("step.")]
    assert seqs("--kind", "step.*", "--limit", "0") == steps
    assert seqs("--kind", "step.*", "--limit", "2") == steps[-2:]
    assert seqs("--kind", "step.*", "--after", str(steps[1]), "--limit", "3") == steps[2:5]
    assert seqs("--after", "5", "--limit", "2") == [6, 7]


def test_more_events_than_fit_into_a_page_come_once_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every second one is of another kind, so that a page ends far after its number of events."""
    story = [event for n in range(1500) for event in (accepted(f"{n:032x}", n), ev.TrainingPaused(by="test"))]
    path = write(tmp_path / "many.db", story)
    assert main(["ctl", "events", "--jsonl", "--kind", "training.paused", "--limit", "0", "--file", str(path)]) == 0
    assert [json.loads(line)["seq"] for line in capsys.readouterr().out.splitlines()] == list(range(2, 3001, 2))


def test_following_tells_events_as_they_come(tmp_path: Path) -> None:
    path = write(tmp_path / "followed.db", STORY)
    command = [
        sys.executable,
        "-m",
        "apollod",
        "ctl",
        "events",
        "--follow",
        "--jsonl",
        "--limit",
        "1",
        "--file",
        str(path),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        try:
            assert following.stdout is not None
            assert json.loads(following.stdout.readline())["seq"] == len(STORY)
            append_row(path, "training.paused", 1, '{"by":"test"}')
            assert json.loads(following.stdout.readline())["seq"] == len(STORY) + 1
        finally:
            following.kill()
