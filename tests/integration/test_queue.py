"""What `ctl` puts into the queue and takes out of it: lines with their numbers in the file; examples that wait."""

import json

import pytest
from support.childless import answered, reached
from support.journals import STORY, TWIN, A, B, F, write

from apollod.cli.control import ctl
from apollod.cli.main import main
from apollod.supervisor.config import Config
from apollod.wire import control_messages
from apollod.wire import messages as msg

BAD = "this is no record"


@pytest.fixture
def config(tmp_path, monkeypatch) -> Config:
    return reached(tmp_path, monkeypatch)


def test_a_line_is_recorded_with_its_number_in_the_file(config, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(control_messages, "SUBMIT_LINES", 3)
    file = tmp_path / "many.jsonl"
    file.write_text("".join(f'{{"text": "line {n}"}}\n' if n not in (2, 5) else f"{BAD}\n" for n in range(1, 8)))
    assert main(["ctl", "submit", str(file), "--socket", "unused"]) == 0
    assert [line.split(":")[1:3] for line in capsys.readouterr().err.splitlines()] == [
        [f" {file}", "2"],
        [f" {file}", "5"],
    ]
    journal = str(config.journal_path)
    assert main(["ctl", "query", "SELECT line, record FROM examples ORDER BY seq", "--csv", "--file", journal]) == 0
    rows = capsys.readouterr().out.splitlines()[1:]
    assert [row.partition(",")[0] for row in rows] == ["1", "3", "4", "6", "7"]
    assert all(f"line {row.partition(',')[0]}" in row for row in rows)


def test_a_byte_order_mark_is_dropped_from_the_first_line_of_the_file_only(config):
    line = b'\xef\xbb\xbf{"text": "a"}\n'
    assert len(answered(config, msg.SubmitRequest([line], "ctl:f"))["examples"]) == 1
    (rejected,) = answered(config, msg.SubmitRequest([line], "ctl:f", first=1001))["rejected"]
    assert rejected["line"] == 1001


def states(config: Config, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    capsys.readouterr()
    sql = "SELECT id, state FROM examples"
    assert main(["ctl", "query", sql, "--csv", "--file", str(config.journal_path)]) == 0
    return dict(row.split(",") for row in capsys.readouterr().out.splitlines()[1:])


def ctl_of(config: Config, *words: str) -> int:
    return main(["ctl", *words, "--socket", "unused"])


def test_examples_that_wait_are_withdrawn_by_id_and_come_back(config, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(ctl, "journal_path", lambda args: str(config.journal_path))
    file = tmp_path / "a.jsonl"
    file.write_text("".join(f'{{"text": "line {n}"}}\n' for n in range(3)))
    assert ctl_of(config, "submit", str(file)) == 0
    first, second, third = states(config, capsys)
    assert ctl_of(config, "example", "withdraw", first[:8], third) == 0
    assert "\n2 examples no longer wait" in capsys.readouterr().out  # after a line of the log
    assert states(config, capsys) == {first: "withdrawn", second: "pending", third: "withdrawn"}
    assert main(["ctl", "why", first]) == 0
    assert "withdrawn: taken out of the queue by ctl (event 4)" in capsys.readouterr().out
    assert ctl_of(config, "example", "withdraw", second, first) == 1
    assert f"{first} does not wait; nothing was withdrawn" in capsys.readouterr().err
    assert ctl_of(config, "relearn", first) == 0
    assert states(config, capsys) == {first: "pending", second: "pending", third: "withdrawn"}
    assert ctl_of(config, "example", "withdraw", "--source", f"ctl:{file}") == 0
    assert set(states(config, capsys).values()) == {"withdrawn"}


def test_a_source_is_withdrawn_by_its_path_or_identity_as_far_as_it_waits(config, capsys):
    write(config.journal_path, STORY)
    assert ctl_of(config, "example", "withdraw", "--source", "/in/a.jsonl", "--json") == 0
    assert '"examples": []' in capsys.readouterr().out  # its last example is being learned
    assert states(config, capsys)[F] == "pending"
    assert ctl_of(config, "example", "withdraw", "--source", "src") == 0
    assert ctl_of(config, "example", "withdraw", "--source", "ctl:/home/me/more.jsonl") == 0
    told = states(config, capsys)
    assert (told[A], told[B], list(told.values()).count("withdrawn")) == ("trained", "rejected", 1)
    assert ctl_of(config, "example", "withdraw", "--source", "/in/none") == 1
    assert "no example came from /in/none" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["--source", "s", "abcdef"]])
def test_either_ids_or_a_source(config, capsys, words):
    assert ctl_of(config, "example", "withdraw", *words) == 2
    assert "which examples?" in capsys.readouterr().err


def test_what_is_next_is_shown_for_people_and_as_one_object(config, capsys):
    write(config.journal_path, STORY)
    assert ctl_of(config, "queue", "show") == 0
    page = capsys.readouterr().out
    assert "waiting     0 given directly, 1 others; 1 of them are not tokenised yet; 1 more are held" in page
    assert f"running     step 5: {F}" in page and "waits for   the engine is not ready" not in page
    assert "waits for   the trainer is not running" in page and "order       the order in which they came" in page
    assert f"1  {TWIN}  bulk" in page and "came; not tokenised yet" in page
    assert ctl_of(config, "queue", "show", "--limit", "1", "--json") == 0
    shown = json.loads(capsys.readouterr().out.splitlines()[-1])
    (twin,) = shown["next"]
    assert (twin["example"], twin["source"]) == (TWIN, "ctl:/home/me/more.jsonl")
    assert shown["taken"]["source"] == [{"name": "src", "examples": 1}]  # of the window that is open


def test_an_empty_queue_is_shown_as_one(config, capsys):
    assert ctl_of(config, "queue", "show") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "order       the order in which they came"
