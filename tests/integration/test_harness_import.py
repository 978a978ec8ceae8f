"""`apollod ctl quality import`: tasks of lm-evaluation-harness with documents on this machine."""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from apollod.cli.main import main
from apollod.curation.probes.probe_lines import probe_set, read_probes

harness = pytest.mark.skipif(importlib.util.find_spec("lm_eval") is None, reason="the extra lm-eval is not installed")
ARC = [
    {"id": str(n), "question": f"Which of these is hot, {n}?",
     "choices": {"text": ["ice", f"fire {n}", "snow"], "label": ["A", "B", "C"]}, "answerKey": "B"}
    for n in range(6)
]  # fmt: skip
GSM8K = [
    {"question": f"Ann has {n} apples and buys 1,000. How many?", "answer": f"{n}+1000\n#### 1,{n:03}"} for n in (7, 8)
]
YAML = """
task: mine
output_type: generate_until
test_split: test
doc_to_text: "{{question}}"
doc_to_target: !function mine.target
description: "Think of fruit. "
"""


def file(path: Path, docs: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(one) + "\n" for one in docs))
    return str(path)


def take(tmp_path: Path, task: str, data: str, *more: str) -> tuple[int, list[dict[str, Any]]]:
    out = tmp_path / "out.jsonl"
    code = main(["ctl", "quality", "import", task, "--data", data, "--out", str(out), *more])
    if not out.exists():
        return code, []
    lines = out.read_bytes().splitlines()
    probe_set(read_probes(lines, str(out)))
    return code, [json.loads(line) for line in lines]


@harness
@pytest.mark.slow
def test_a_task_of_choices_and_one_of_answers_become_probes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = take(tmp_path, "arc_easy", file(tmp_path / "a.jsonl", ARC), "--limit", "3", "--json")
    assert code == 0 and [one["id"] for one in lines] == ["arc_easy/0", "arc_easy/2", "arc_easy/4"], "spread evenly"
    assert "B. fire 2" in lines[1]["messages"][0]["content"]
    found = json.loads(capsys.readouterr().out)
    assert (found["probes"], found["output_type"], found["left_out"]) == (3, "multiple_choice", [])
    assert (
        take(tmp_path, "arc_easy", str(tmp_path / "a.jsonl"))[0] == 1 and "is there already" in capsys.readouterr().err
    )
    (tmp_path / "out.jsonl").unlink()
    code, lines = take(tmp_path, "gsm8k", file(tmp_path / "g.jsonl", GSM8K))
    assert code == 0 and "1,?007" in lines[0]["expect"] and "Ann has 7 apples" in lines[0]["messages"][0]["content"]
    assert "apollod ctl quality baseline" in capsys.readouterr().out


@harness
@pytest.mark.slow
def test_a_task_of_ones_own_may_use_functions_and_what_cannot_be_asked_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text(YAML)
    (tmp_path / "mine.py").write_text("def target(doc):\n    return doc['answer'].rpartition('#### ')[2]\n")
    docs = [*GSM8K, GSM8K[0], {"question": "What is left?", "answer": "#### "}]
    code, lines = take(tmp_path, str(tmp_path / "mine.yaml"), file(tmp_path / "g.jsonl", docs))
    assert code == 0 and [one["id"] for one in lines] == ["mine/0", "mine/1"]
    assert lines[0]["messages"][0]["content"].startswith("Think of fruit. Ann has 7")
    assert "left out: 2, the first since document 2 asks the same as document 0" in capsys.readouterr().out


@harness
@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "docs", "why"),
    [
        ("no_such_task", ARC, "has no task no_such_task"),
        ("arc_easy", GSM8K, "'choices' is undefined; check that the documents have the fields"),
        ("wikitext", ARC, "is of output type loglikelihood_rolling; take one of generate_until or multiple_choice"),
        ("mmlu", ARC, "is no single task"),
    ],
)
def test_what_cannot_be_taken_is_said_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], task: str, docs: list[dict[str, Any]], why: str
) -> None:
    assert take(tmp_path, task, file(tmp_path / "a.jsonl", docs)) == (1, [])
    assert why in capsys.readouterr().err


def test_without_the_harness_it_says_how_to_have_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    monkeypatch.delitem(sys.modules, "lm_eval.tasks", raising=False)
    assert take(tmp_path, "arc_easy", file(tmp_path / "a.jsonl", ARC)) == (1, [])
    assert "pip install 'apollod[lm-eval]'" in capsys.readouterr().err


def test_data_that_are_not_there_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert take(tmp_path, "arc_easy", str(tmp_path / "none.jsonl")) == (1, [])
    assert "there are no data at" in capsys.readouterr().err
