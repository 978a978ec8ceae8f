"""What `apollod ctl events|query --json` prints is one JSON object, whatever was asked."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.journals import STORY, write

Ctl = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def ctl(tmp_path: Path) -> Ctl:
    """`apollod ctl` on a journal without a daemon."""
    (tmp_path / "apollod.toml").write_text(f'[state]\ndir = "{tmp_path}"\n[model]\npath = "{tmp_path}/m"\n')
    write(tmp_path / "journal.db", STORY)

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "apollod", "ctl", *arguments, "--config", str(tmp_path / "apollod.toml")]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=20, env=os.environ)

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
    done = ctl("query", "SELECT 9e999 AS a, -9e999 AS b, NULL AS c, 9e999 - 9e999 AS d, 1.5 AS e, 'Infinity' AS f", "--json")
    assert done.returncode == 0
    assert strict(done.stdout)["rows"] == [{"a": "Infinity", "b": "-Infinity", "c": None, "d": None, "e": 1.5, "f": "Infinity"}]


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
