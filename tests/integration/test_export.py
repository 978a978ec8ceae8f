"""`apollod ctl export` on journals without a daemon; what the lines say is tests/property/test_exports.py."""

import json
import shutil
from pathlib import Path

import pytest
from support.journals import STORY, A, B, D, E, write

from apollod.cli.main import main
from apollod.wire.records import parse_line

GOLDEN = Path(__file__).parents[1] / "golden" / "v0.1.0.db"
ENDLESS = "(WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c) > 0"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("export") / "journal.db", STORY)


def export(path: Path, *args: str) -> int:
    return main(["ctl", "export", "--file", str(path), "--format", *args])


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_what_was_learned_unless_something_else_is_asked_for(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(path, "trl") == 0
    assert lines(capsys) == [{"text": "line 1"}, {"text": "line 5"}]
    assert export(path, "trl", "--state", "rejected", "--state", "held") == 0
    assert lines(capsys) == [{"text": "line 2"}, {"text": "line 4"}]
    assert export(path, "trl", "--state", "all", "--where", f"id IN ('{A}', '{B}', '{D}') OR step = 4 -- or so") == 0
    assert lines(capsys) == [{"text": f"line {number}"} for number in (1, 2, 4, 5)]
    assert export(path, "trl", "--where", f"id = '{B}'") == 0, "a state was not asked for: what was learned"
    out, err = capsys.readouterr()
    assert not out and "0 examples" in err and E not in err


def test_a_journal_of_a_real_daemon_reads_back_to_the_same_ids(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = Path(shutil.copy(GOLDEN, tmp_path / "journal.db"))
    assert main(["ctl", "example", "list", "--jsonl", "--limit", "0", "--file", str(copy)]) == 0
    examples = lines(capsys)
    ids = [example["id"] for example in examples]
    for form in ("trl", "openai"):
        assert export(copy, form, "--state", "all") == 0
        assert [parse_line(line.encode()).id for line in capsys.readouterr().out.splitlines()] == ids
    assert export(copy, "atif", "--state", "all", "-o", str(tmp_path / "trajectories.jsonl")) == 0
    capsys.readouterr()
    tried = ["ctl", "source", "test", str(tmp_path / "trajectories.jsonl"), "--model", "*", "--strip", "none", "--json"]
    assert main(tried) == 0
    told = json.loads(capsys.readouterr().out)
    conversations = [example["id"] for example in examples if "messages" in example["record"]]
    assert len(conversations) > 10 and told["format"] == "atif"
    assert [example["id"] for example in told["examples"]] == conversations


def test_a_file_appears_when_it_is_whole(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("as it was\n")
    assert export(path, "trl", "-o", str(rows), "--where", ENDLESS, "--seconds", "0.2") == 1
    assert "took longer than 0.2 s" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["rows.jsonl"] and rows.read_text() == "as it was\n"
    assert export(path, "trl", "-o", str(rows), "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"schema_version": 1, "format": "trl", "examples": 2, "notes": {}}
    assert rows.read_text() == '{"text":"line 1"}\n{"text":"line 5"}\n'


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--where", "step >"], 1, "the query is wrong"),
        (["--where", "1) OR load_extension('x') OR (1"], 1, "the query is"),
        (["--where", "1); DELETE FROM events; --"], 1, "the query is"),
        (["--json"], 2, "-o FILE"),
        (["--seconds", "0"], 2, "is none"),
    ],
)
def test_refusals(path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, words: str) -> None:
    before = path.read_bytes()
    assert export(path, "openai", *arguments) == code
    out, err = capsys.readouterr()
    assert words in err and not out and path.read_bytes() == before


def test_what_has_no_such_form_is_counted(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(path, "atif") == 0
    out, err = capsys.readouterr()
    assert not out and "2 of them: no conversation, for which ATIF has no form" in err
