"""How much better a line is said, as the view `gains` tells it: what stands, and what was learned weakly."""

import json
from pathlib import Path

import pytest
from support.journals import STORY, TAKEN_BACK, A, C, E, completed, write

from apollod.adapters.journal.journal_reader import query
from apollod.cli.control.quality import learned_facts
from apollod.cli.main import main
from apollod.core import events as ev
from apollod.core.facts.intake.events import Given
from apollod.core.facts.rescoring import is_weak

COLUMNS = "example, step, before, after, tokens, weights_version, weak"


def rescored(example: str, step: int, weights: int, before: float, after: float | None) -> ev.ExamplesRescored:
    reason = "" if after is not None else "no"
    return ev.ExamplesRescored(1, weights, (ev.Rescored(example, step, before, after, 4, reason),), 0.1)


def test_the_newest_score_of_weights_that_stand(tmp_path: Path) -> None:
    story = [*STORY, rescored(A, 1, 4, 2.0, 1.9), rescored(A, 1, 4, 2.0, 1.5), rescored(C, 2, 4, 2.0, None)]
    path = write(tmp_path / "j.db", story)
    assert query(path, f"SELECT {COLUMNS} FROM gains").rows == [(A, 1, 2.0, 1.5, 4, 4, 0)]
    back = [*story, rescored(E, 4, 4, 1.0, 0.5), *TAKEN_BACK, *completed(6, 0, A), rescored(A, 6, 6, 3.0, 2.9)]
    path = write(tmp_path / "k.db", back)
    assert query(path, f"SELECT {COLUMNS} FROM gains").rows == [(A, 6, 3.0, 2.9, 4, 6, 1)]


@pytest.mark.parametrize(
    ("before", "after"), [(2.0, 1.9), (2.0, 1.5), (0.5, 0.49), (0.6, 0.51), (5.0, 4.4), (1.0, 3.0)]
)
def test_weak_is_what_the_daemon_calls_so(tmp_path: Path, before: float, after: float) -> None:
    path = write(tmp_path / "j.db", [*STORY, rescored(A, 1, 4, before, after)])
    assert query(path, "SELECT weak FROM gains").rows == [(int(is_weak(before, after)),)]


@pytest.mark.parametrize(
    ("weights", "after", "told"),
    [
        (4, 1.4, "loss 2.31 -> 1.40 nats a token (4 of 4 tokens), scored 3 steps later"),
        (1, 2.3, "scored right after its step; it hardly moved: given again, it is taught again"),
    ],
)
def test_people_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], weights: int, after: float, told: str
) -> None:
    path = write(tmp_path / "j.db", [*STORY, rescored(A, 1, weights, 2.31, after)])
    for verb in (["why"], ["example", "show"]):
        assert main(["ctl", *verb, A, "--file", str(path)]) == 0
        assert told in next(line for line in capsys.readouterr().out.splitlines() if line.startswith("learned  "))
        assert main(["ctl", *verb, A, "--json", "--file", str(path)]) == 0
        gain = json.loads(capsys.readouterr().out)["example"]["gain"]
        assert (gain["before"], gain["after"], gain["weak"]) == (2.31, after, after > 2)
        assert main(["ctl", *verb, E, "--file", str(path)]) == 0
        assert "nats" not in capsys.readouterr().out
    told_again = f"of 1 scored again, loss 2.31 -> {after:.2f} nats a token on average"
    assert told_again in "\n".join(learned_facts.lines(learned_facts.facts(str(path))))


def test_what_a_lesson_replaced_is_told_as_such_and_counts_as_weak_no_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ev.LessonGiven("L1", Given(question="Who?", answer="Ann"), "p")
    replaced = ev.ExampleReplaced(A, "L1", "lesson L1 has another answer", "Bob")
    events = [*STORY, rescored(A, 1, 4, 2.0, 1.9), given, replaced]
    path = str(write(tmp_path / "j.db", events))
    assert learned_facts.totals(path) is None
    for words in (["why", A], ["example", "show", A]):
        assert main(["ctl", *words, "--file", path]) == 0
        page = capsys.readouterr().out
        assert "replaced    lesson L1 has another answer: it is not taught again\n" in page
        assert "hardly moved" not in page
        assert main(["ctl", *words, "--json", "--file", path]) == 0
        told = json.loads(capsys.readouterr().out)["example"]
        assert told["replaced"] == {"lesson": "L1", "reason": "lesson L1 has another answer"}
        assert told["gain"]["weak"] is False
    for by, weak in (("apollod", None), ("ann", 1)):
        path = str(write(tmp_path / f"{by}.db", [*events, ev.LessonGivenUp("L1", by, "")]))
        found = learned_facts.totals(path)
        assert (found and found["weak"]) == weak
        assert main(["ctl", "why", A, "--file", path]) == 0
        assert ("replaced " in capsys.readouterr().out) == (weak is None)
