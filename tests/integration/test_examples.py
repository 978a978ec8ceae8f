"""`apollod ctl example list|show` and `source list`: what a person types, on a journal without a daemon."""

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.journals import STORY, TAKEN_BACK, TWIN, A, B, C, D, E, F, append_row, write

from apollod.cli.main import main
from apollod.core import events as ev
from apollod.core.example_state import STATES

GOLDEN = Path(__file__).parents[1] / "golden" / "v0.1.0.db"
CHAT = {
    "messages": [
        {"content": "Be\nbrief.", "role": "system"},
        {
            "content": "",
            "role": "assistant",
            "tool_calls": [{"function": {"arguments": {"of": "it"}, "name": "who"}, "type": "function"}],
        },
        {"content": "Mara \x1b[2J" + "Quill " * 50, "role": "tool"},
        {"content": "not this", "role": "assistant", "weight": 0},
        {"content": "Mara.", "reasoning_content": "who is it", "role": "assistant"},
    ],
    "tools": [{"name": "who"}],
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("examples") / "journal.db", STORY)


def said(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert main(["ctl", *args]) == 0
    return capsys.readouterr().out


def listed(capsys: pytest.CaptureFixture[str], path: Path, *args: str) -> list[dict[str, Any]]:
    answer = json.loads(said(capsys, "example", "list", "--json", "--file", str(path), *args))
    assert answer["schema_version"] == 1
    return list(answer["examples"])


def test_the_newest_examples_in_the_order_of_learning(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = listed(capsys, path)
    assert [(e["id"], e["state"], e["step"]) for e in found] == [
        (A, "trained", 1), (B, "rejected", None), (C, "skipped", 2), (D, "held", 3), (E, "trained", 4),
        (F, "pending", None),
        (TWIN, "pending", None),
    ]  # fmt: skip
    assert (found[0]["path"], found[0]["line"], found[0]["tier"], found[0]["tokens"]) == ("/in/a.jsonl", 1, "bulk", 9)
    assert found[0]["record"] == {"text": "line 1"} and found[-1]["path"] == "ctl:/home/me/more.jsonl"
    assert [e["id"] for e in listed(capsys, path, "--state", "trained")] == [A, E]
    assert [e["id"] for e in listed(capsys, path, "--limit", "2")] == [F, TWIN]
    assert len(listed(capsys, path, "--limit", "0")) == 7
    lines = said(capsys, "example", "list", "--jsonl", "--limit", "2", "--file", str(path)).splitlines()
    assert [json.loads(line)["id"] for line in lines] == [F, TWIN]
    table = said(capsys, "example", "list", "--file", str(path)).splitlines()
    assert len(table) == 2 + 7 and A in table[2] and "/in/a.jsonl:1" in table[2] and table[2].endswith("line 1")


def test_whoever_sees_only_some_is_told_so(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for limit, words in (("2", "only the newest 2"), ("7", "")):
        assert main(["ctl", "example", "list", "--limit", limit, "--file", str(path)]) == 0
        told = capsys.readouterr().err
        assert words in told and bool(told) == bool(words)


def test_every_state_that_can_be_asked_for_is_one_of_the_view(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "journal.db", STORY + TAKEN_BACK)
    counts = {state: len(listed(capsys, path, "--state", state)) for state in STATES}
    some = {"pending": 3, "rejected": 1, "skipped": 1, "held": 1, "undone": 1}
    assert counts == dict.fromkeys(STATES, 0) | some


def test_one_example_in_full(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = json.loads(said(capsys, "example", "show", D[:7].upper(), "--json", "--file", str(path)))
    assert answer["schema_version"] == 1
    example = answer["example"]
    assert (example["id"], example["state"], example["reason"], example["steps"]) == (D, "held", "out of memory", [3])
    shown = said(capsys, "example", "show", A, "--file", str(path))
    assert f"example     {A}\n" in shown and "state       trained by step 1\n" in shown and "/in/a.jsonl:1\n" in shown
    assert "9, 4 of them targets\n" in shown and shown.endswith("\n\ntext, target\n    line 1\n")
    assert "rejected: no target tokens" in said(capsys, "example", "show", B, "--file", str(path))
    assert "skipped by step 2: loss is not finite" in said(capsys, "example", "show", C, "--file", str(path))


def test_a_conversation_is_shown_whole_and_steers_no_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = msgspec.Raw(json.dumps(CHAT).encode())
    path = write(
        tmp_path / "journal.db", [ev.ExampleAccepted(example=A, record=record, source="src", line=1, tier="direct")]
    )
    shown = said(capsys, "example", "show", A, "--file", str(path))
    assert shown.split("\n\n", 2)[2] == (
        "system\n    Be\n    brief.\n\n"
        "assistant, target\n    calls who\n        of: it\n\n"
        "tool\n    Mara \\x1b[2J" + "Quill " * 50 + "\n\n"
        "assistant\n    not this\n\n"
        "assistant, target\n    <think>\n    who is it\n    </think>\n    Mara.\n"
    )
    assert '"name": "who"' in shown.split("\n\n")[1] and "tier        direct\n" in shown
    row = said(capsys, "example", "list", "--file", str(path)).splitlines()[2]
    assert row.endswith("...") and "Be brief." in row and "\x1b" not in row


@pytest.mark.parametrize(
    ("what", "code", "words"),
    [
        ("abc", 2, "at least 6 digits"), ("' OR 1=1", 2, "is no example"),
        ("dddddd123", 1, "no example begins with dddddd123"),
        (A[:7], 1, "several examples begin with"),
    ],
)  # fmt: skip
def test_what_is_no_example(path: Path, capsys: pytest.CaptureFixture[str], what: str, code: int, words: str) -> None:
    assert main(["ctl", "example", "show", what, "--file", str(path)]) == code
    told = capsys.readouterr()
    assert words in told.err and told.err.count("\n") == 1 and not told.out


@pytest.mark.parametrize("args", [["--state", "learned"], ["--limit", "-1"]])
def test_wrong_usage(path: Path, args: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["ctl", "example", "list", "--file", str(path), *args])
    assert ended.value.code == 2


def test_sources(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = json.loads(said(capsys, "source", "list", "--json", "--file", str(path)))
    assert answer["schema_version"] == 1
    (source,) = answer["sources"]
    assert (source["path"], source["offset"], source["line"], source["accepted"], source["rejected"]) == (
        "/in/a.jsonl",
        600,
        6,
        6,
        0,
    )
    assert json.loads(said(capsys, "source", "list", "--jsonl", "--file", str(path))) == source
    assert said(capsys, "source", "list", "--file", str(path)).splitlines()[2].split()[:4] == [
        "/in/a.jsonl",
        "600",
        "6",
        "6",
    ]


def test_a_journal_of_the_first_release(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its views have no tier."""
    path = Path(shutil.copy(GOLDEN, tmp_path / "journal.db"))
    found = listed(capsys, path, "--limit", "0")
    assert len(found) == 15 and {e["tier"] for e in found} == {"bulk"}
    for example in found:
        shown = json.loads(said(capsys, "example", "show", example["id"], "--json", "--file", str(path)))["example"]
        assert {name: shown[name] for name in example} == example
    assert said(capsys, "source", "list", "--file", str(path)).count("\n") == 2 + 7


READ_AGAIN: list[ev.Event] = [
    ev.SourceDiscovered(source="src", path="/in/a.1.jsonl"),
    ev.SourceConsumed(source="src", path="/in/a.1.jsonl", offset=600, line=6, accepted=0, duplicates=6, rejected=0),
]
"""goes on with STORY: a file that was rotated away, as versions that forgot its position went on"""


def test_a_file_that_was_read_twice_is_one_source_and_its_examples_are_shown_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "journal.db", STORY + READ_AGAIN)
    (source,) = json.loads(said(capsys, "source", "list", "--json", "--file", str(path)))["sources"]
    assert (source["path"], source["line"], source["accepted"], source["duplicates"]) == ("/in/a.1.jsonl", 6, 6, 6)
    assert source["seq"] == 1 + STORY.index(ev.SourceDiscovered(source="src", path="/in/a.jsonl")), (
        "when it was seen first"
    )
    assert [e["id"] for e in listed(capsys, path)] == [A, B, C, D, E, F, TWIN]
    assert "/in/a.1.jsonl:1\n" in said(capsys, "example", "show", A, "--file", str(path))


def test_a_file_that_was_read_twice_in_a_journal_of_the_first_release(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(shutil.copy(GOLDEN, tmp_path / "journal.db"))
    before = listed(capsys, path, "--limit", "0")
    for name in {e["source"] for e in before if e["path"] != e["source"]}:
        append_row(path, "source.discovered", 1, f'{{"source":"{name}","path":"/in/a.1.jsonl","replaces":""}}', name)
    assert listed(capsys, path, "--limit", "0") == before
    for example in before:
        assert f"example     {example['id']}\n" in said(capsys, "example", "show", example["id"], "--file", str(path))
