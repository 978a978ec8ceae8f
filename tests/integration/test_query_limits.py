"""The limits of `apollod ctl query` bite whatever the statement is: the real command, with little memory."""

import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.journals import STORY, write

from apollod.adapters.journal.journal_reader import query
from apollod.errors import JournalError

MEMORY = 1 << 30


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("journal") / "journal.db", STORY)


def ask(path: Path, sql: str, *options: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "apollod", "ctl", "query", sql, "--file", str(path), *options],
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
    )


@pytest.mark.parametrize(
    ("sql", "seconds", "said"),
    [
        (  # one call of one function
            "SELECT instr(replace(hex(zeroblob(400000)), '0', 'a'), replace(hex(zeroblob(200000)), '0', 'a') || 'b')",
            1,
            "took longer than 1 s; narrow it or allow more time",
        ),
        ("SELECT zeroblob(60000000) FROM events", 30, "more than 256 MiB; select fewer or shorter columns"),
        ("SELECT hex(zeroblob(30000000)) FROM events", 30, "more than 256 MiB; select fewer or shorter columns"),
        (  # many small ones; the clock may come first
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n",
            1,
            "; ",
        ),
    ],
    ids=["function", "blobs", "texts", "rows"],
)
def test_time_and_memory_of_a_statement_are_bounded(path: Path, sql: str, seconds: int, said: str) -> None:
    begin = time.monotonic()
    done = ask(path, sql, "--seconds", str(seconds), "--limit", "1000000000")
    assert time.monotonic() - begin < seconds + 7
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("apollod: ") and done.stderr.count("\n") == 1 and said in done.stderr


def test_any_number_of_seconds_may_be_given(path: Path) -> None:
    assert ask(path, "SELECT count(*) AS n FROM events", "--seconds", "1e300", "--csv").stdout.split() == [
        "n",
        str(len(STORY)),
    ]


def test_as_many_rows_as_the_limit_are_all_of_them(path: Path) -> None:
    count = len(STORY)
    for limit, truncated in ((count - 1, True), (count, False), (count + 1, False), (0, True), (1 << 70, False)):
        answer = query(path, "SELECT seq FROM events ORDER BY seq", limit)
        assert (len(answer.rows), answer.truncated) == (min(limit, count), truncated)


def test_the_bytes_of_an_answer_are_its_callers_choice(path: Path) -> None:
    sql = "SELECT zeroblob(1000000) FROM events"
    assert len(query(path, sql).rows) == len(STORY)
    with pytest.raises(JournalError, match="too large: 3 rows take more than 5 MiB"):
        query(path, sql, bytes_limit=5 << 20)
