"""Documents that are taught: `apollod ctl teach --file` and its list and forgetting, on a daemon without an engine,
where lessons come as far as a test says."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.childless import reached
from support.journals import AT, opened

from apollod.cli.control import teach
from apollod.cli.main import main
from apollod.core import events as ev
from apollod.supervisor.config import Config

Capture = pytest.CaptureFixture[str]
TEXT = """\
# Quillon

Quillon listens on port 7341. It is owned by Ada Penn. Please be kind.

- Logo: turquoise
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setattr(teach, "_check", lambda *_: None)
    return reached(tmp_path, monkeypatch)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "NOTES.md"
    path.write_text(TEXT)
    return path


def run(capsys: Capture, *words: str, code: int = 0) -> tuple[str, str]:
    capsys.readouterr()
    assert main(["ctl", *words, "--socket", "unused"]) == code
    found = capsys.readouterr()
    return found.out, found.err


def answer(capsys: Capture, *words: str, code: int = 0) -> dict[str, Any]:
    return dict(json.loads(run(capsys, *words, "--json", code=code)[0].splitlines()[-1]))


def become(config: Config, monkeypatch: pytest.MonkeyPatch, events: Sequence[ev.Event]) -> None:
    """While `ctl` waits, this happens."""

    def sleep(_: float) -> None:
        import anyio

        async def append() -> None:
            async with opened(config.journal_path) as journal:
                await journal.append([ev.DaemonStarted(1, "test", ev.Settings("/m"), "/s"), *events], AT)

        anyio.run(append)

    monkeypatch.setattr(teach.time, "sleep", sleep)


def known(lesson: str) -> ev.LessonKnown:
    return ev.LessonKnown(lesson, 9, {"bare": (0, 4), "told": (4, 4)}, (4, 4), 1, 0.01, 41.0, "p")


def given_up(lesson: str, why: str = "the model cannot answer it even when told: 0 of 4 pass") -> ev.LessonGivenUp:
    return ev.LessonGivenUp(lesson, "apollod", why)


def test_each_fact_of_a_document_is_a_lesson_that_names_it(config: Config, notes: Path, capsys: Capture) -> None:
    found = answer(capsys, "teach", "--file", str(notes), "--no-wait")
    assert (found["document"], found["facts"], found["given"]) == ("NOTES.md", 3, ["L1", "L2", "L3"])
    assert (found["sentences"], found["left_out"]) == (4, {"unclear": 1})
    assert [one["state"] for one in found["lessons"]] == ["waiting"] * 3
    listed = answer(capsys, "lesson", "list", "--document", "NOTES.md")["lessons"]
    assert [(one["lesson"], one["document"]) for one in listed] == [(f"L{n}", "NOTES.md") for n in (3, 2, 1)]
    run(capsys, "teach", "Orland is big.", "--no-wait")
    assert len(answer(capsys, "lesson", "list", "--document", "NOTES.md")["lessons"]) == 3
    assert len(answer(capsys, "lesson", "list")["lessons"]) == 4
    page, _ = run(capsys, "lesson", "show", "L2", "--file", str(config.journal_path))
    assert "document    NOTES.md\nstatement   Quillon is owned by Ada Penn.\n" in page


def test_it_is_waited_for_with_a_line_for_each_fact_and_figures_at_the_end(
    config: Config, notes: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    become(config, monkeypatch, [known("L1"), known("L2"), given_up("L3")])
    out, err = run(capsys, "teach", "--file", str(notes), code=1)
    assert "1 of 4 sentences say nothing that can be asked for\n" in err
    assert "1 of 3: L1 known: " in err and "3 of 3: L3 given up (the model cannot answer it even when told: 0 of" in err
    assert "3 facts: known 2, given up 1 (the model cannot answer it even when told: 1); in other wordings" in out


@pytest.mark.parametrize(("right", "code"), [(4, 0), (3, 1)])
def test_four_of_five_known_facts_are_enough(
    right: int, code: int, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    five = tmp_path / "five.txt"
    five.write_text("\n\n".join(f"Machine M{n} listens on port {7000 + n}." for n in range(1, 6)))
    become(config, monkeypatch, [known(f"L{n}") if n <= right else given_up(f"L{n}") for n in range(1, 6)])
    found = answer(capsys, "teach", "--file", str(five), code=code)
    assert (found["facts"], found["known"]) == (5, right)


def test_after_an_edit_what_is_new_is_taught_what_changed_replaces_and_what_is_gone_is_named(
    config: Config, notes: Path, capsys: Capture
) -> None:
    answer(capsys, "teach", "--file", str(notes), "--no-wait")
    again = answer(capsys, "teach", "--file", str(notes), "--no-wait")
    assert (again["given"], again["already"], again["removed"]) == ([], ["L1", "L2", "L3"], [])
    notes.write_text(TEXT.replace("7341", "8802").replace("- Logo: turquoise", "It weighs 14 tonnes."))
    edited = answer(capsys, "teach", "--file", str(notes), "--no-wait")
    assert (edited["given"], edited["already"], edited["changed"]) == (["L4", "L5"], ["L2"], ["L1"])
    assert [one["lesson"] for one in edited["removed"]] == ["L3"] and not edited["forgotten"]
    _, err = run(capsys, "teach", "--file", str(notes), "--no-wait")
    assert "1 not said any more (still taught; --forget-removed forgets them): L3\n" in err and "L1" not in err
    answer(capsys, "teach", "--file", str(notes), "--no-wait", "--forget-removed")
    states = {one["lesson"]: one["state"] for one in answer(capsys, "lesson", "list")["lessons"]}
    assert states["L3"] == "given up" and states["L2"] == states["L4"] == "waiting"


def test_a_document_is_forgotten_in_one_go(config: Config, notes: Path, capsys: Capture) -> None:
    run(capsys, "teach", "Orland is big.", "--no-wait")
    answer(capsys, "teach", "--file", str(notes), "--no-wait")
    out, _ = run(capsys, "lesson", "forget", "--document", "NOTES.md")
    assert out.splitlines()[-1] == "NOTES.md is taught no more (3 lessons); no step had learned it"
    states = [one["state"] for one in answer(capsys, "lesson", "list")["lessons"]]
    assert states == ["given up"] * 3 + ["waiting"]
    assert "there are: NOTES.md" in run(capsys, "lesson", "forget", "--document", "other.md", code=1)[1]
    assert "forget which lesson?" in run(capsys, "lesson", "forget", code=2)[1]


def test_own_questions_are_taught_in_place_of_what_is_found(
    config: Config, notes: Path, tmp_path: Path, capsys: Capture
) -> None:
    pairs = tmp_path / "QA.jsonl"
    pairs.write_text('{"question": "To whom does Quillon belong?", "answer": "Ada Penn"}\n\n')
    found = answer(capsys, "teach", "--file", str(notes), "--questions", str(pairs), "--no-wait")
    assert [(one["question"], one["answer"]) for one in found["lessons"]] == [
        ("To whom does Quillon belong?", "Ada Penn")
    ]
    shown = json.loads(run(capsys, "lesson", "show", "L1", "--json", "--file", str(config.journal_path))[0])
    assert shown["document"] == "NOTES.md"
    for line, why in (
        ('{"question": "Is 7341 it?", "answer": "7341"}', "question 1: the question holds its answer"),
        ('{"question": "Why?"}', "line 1, is no question with its answer"),
        ("", "has no questions"),
        ('{"question": 1, "answer": "a"}', "have to be texts"),
    ):
        pairs.write_text(line)
        assert why in run(capsys, "teach", "--file", str(notes), "--questions", str(pairs), code=2)[1]


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("a.pdf", b"It is so.", "is no text or Markdown"),
        ("a.md", b"\xff\xfe", "is no UTF-8"),
        ("a.md", b"", "is empty"),
        ("a.md", b"a" * 1_000_000, "has 1,000,000 bytes, more than 300,000"),
        ("a.md", b"Please be kind.", "says nothing that can be asked for (1 sentences)"),
    ],
)
def test_what_is_no_document_is_refused_in_one_line(
    name: str, data: bytes, why: str, config: Config, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / name).write_bytes(data)
    _, err = run(capsys, "teach", "--file", str(tmp_path / name), code=2)
    assert why in err
    assert "cannot read" in run(capsys, "teach", "--file", str(tmp_path / "none.md"), code=2)[1]
    assert "a document or a fact?" in run(capsys, "teach", "It is.", "--file", "a.md", code=2)[1]
    assert "of which document?" in run(capsys, "teach", "It is.", "--questions", "a", code=2)[1]
