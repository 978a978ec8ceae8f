"""`apollod ctl replay --at STEP|TIME`, `--to SEQ`: the state at a moment, also where a clock was set back."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from support.journals import STORY, completed

from apollod.adapters.journal import journal_reader
from apollod.adapters.journal.writer import Journal
from apollod.cli.main import main
from apollod.core import events as ev

NOON = 1_795_176_000_000_000_000  # 2026-11-20T12:00:00Z
SECOND = 1_000_000_000
N = len(STORY)  # its last event is a step that was begun


async def _write(path: Path) -> None:
    """The story at noon; a minute later its last step; then the clock is set back by an hour."""
    journal = await Journal.open(path)
    await journal.append(STORY, NOON + 123_456_789)
    await journal.append(completed(6, 4, "x" * 32), NOON + 60 * SECOND)
    await journal.append([ev.TrainingPaused(by="test")], NOON - 3600 * SECOND + SECOND // 2)
    await journal.append([ev.TrainingResumed(by="test")], NOON - 3500 * SECOND)
    await journal.close()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("at") / "journal.db"
    anyio.run(_write, made)
    return made


@pytest.fixture(autouse=True)
def local_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")  # five hours behind UTC in November
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("at", "seq"),
    [
        ("2026-11-20T12:00:00Z", N + 4),  # the clock went back to eleven afterwards: what it stamped then is earlier
        ("2026-11-20T12:00:00.123Z", N + 4),
        ("2026-11-20T11:00:00Z", N + 3),  # a second is all of it
        ("2026-11-20T11:00:01Z", N + 3),
        ("2026-11-20 06:00", N + 3),
        ("2026-11-20T12:00:00+01:00", N + 3),
        ("2026-11-21", N + 4),
        ("6", N + 2),
    ],
)
def test_the_last_event_of_a_moment_in_the_order_of_the_journal(
    path: Path, capsys: pytest.CaptureFixture[str], at: str, seq: int
) -> None:
    assert main(["ctl", "replay", "--file", str(path), "--at", at, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["replayed"] == seq
    assert main(["ctl", "replay", "--file", str(path), "--to", str(seq), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == answer
    ((hash_,),) = journal_reader.query(path, f"SELECT hash FROM events WHERE seq = {seq}").rows
    assert answer["journal"]["head_hash"] == hash_


@pytest.mark.parametrize(
    ("step", "kind"), [(1, "step.completed"), (2, "step.completed"), (3, "step.failed"), (4, "step.completed")]
)
def test_right_after_the_result_of_a_step(path: Path, capsys: pytest.CaptureFixture[str], step: int, kind: str) -> None:
    assert main(["ctl", "replay", "--file", str(path), "--at", str(step)]) == 0
    first, *_ = capsys.readouterr().out.splitlines()
    ((seq,),) = journal_reader.query(path, f"SELECT seq FROM events WHERE kind = '{kind}' AND key = '{step}'").rows
    assert first == f"event       {seq}, of 2026-11-20T12:00:00.123456Z"


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["--at", "99"], 1, "there is no step 99: the last one is 6; ask for a step from 1 to 6"),
        (["--at", "0"], 1, "steps begin at 1"),
        (["--at", "5"], 1, f"step 5 has no result yet; it was begun in event {N}; see the state then with --to {N}"),
        (["--at", "2026-11-20T10:00:00Z"], 1, "the first one is of 2026-11-20T12:00:00.123456Z; give a later time"),
        (["--at", "lunch"], 2, "'lunch' is neither a step nor a time; give a step's number, or a time such as"),
        (["--at", "12:00"], 2, "neither a step nor a time"),
        (["--at", "1900-01-01"], 1, "no event is as old"),
        (["--at", "0001-01-01T00:00:00Z"], 1, "no event is as old as 0001-01-01T00:00:00.999999Z"),
        (["--at", ""], 2, "neither a step nor a time"),
        (["--to", "999"], 1, f"the journal ends at event {N + 4}; --to may be at most {N + 4}"),
    ],
)
def test_a_moment_that_is_not_there(
    path: Path, capsys: pytest.CaptureFixture[str], args: list[str], code: int, said: str
) -> None:
    assert main(["ctl", "replay", "--file", str(path), *args, "--json"]) == code
    printed = capsys.readouterr()
    assert said in printed.err and printed.err.count("\n") == 1 and not printed.out


def test_before_the_first_event(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ctl", "replay", "--file", str(path), "--to", "0"]) == 0
    assert capsys.readouterr().out.startswith("event       0, before the first\n")


def test_one_moment_only(path: Path) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["ctl", "replay", "--file", str(path), "--to", "1", "--at", "1"])
    assert caught.value.code == 2
