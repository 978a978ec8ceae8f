"""What an imagination is asked for wordings, and what its answers are taken for."""

import json
import time

import pytest

from apollod.core.facts.intake.events import Given
from apollod.core.facts.lessons.events import Wording
from apollod.curation.lessons import imagined_wordings
from apollod.curation.lessons.imagined_wordings import TAKEN_MAX, imagined_in, imagining

GIVEN = Given("Quillon listens on port 7341.")
ONE = {"question": "Which port serves Quillon?", "answer": "7341"}
FORMS = [
    json.dumps([ONE]),
    f"```json\n{json.dumps([ONE], indent=2)}\n```",
    f"Sure! Here you go:\n\n{json.dumps({'questions': [ONE]})}\n\nI hope that this helps {{you}}.",
    json.dumps(ONE),
    json.dumps({"questions": [ONE["question"]]}),
    f"{json.dumps(ONE)}\n{json.dumps(ONE)}",
    f'[{json.dumps(ONE)}, {{"question": "What is cut o',
    '{"prompt": "Which port serves Quillon?", "expected": 7341}',
    "Questions:\n1. Which port serves Quillon?\n2. Is it 7341?",
    "- Which port serves Quillon?",
    '[{"question": "Which  port\nserves Quillon?"}]',
]


def test_the_prompt_is_frozen() -> None:
    """Another prompt imagines other wordings: whoever changes it changes this on purpose."""
    assert imagined_wordings.PROMPT_HASH == "f7f74d308aa1c688"


def test_it_is_told_the_fact_and_what_exists_and_nothing_can_pretend_to_be_a_heading() -> None:
    system, user = imagining(GIVEN, ["Which port?"], 3)
    assert "Write 3 more" in system["content"] and '[{"question"' in system["content"]
    mark = user["content"].split()[1]
    assert user["content"] == (
        f"--- {mark} fact\nQuillon listens on port 7341."
        f"\n--- {mark} question that exists 1\nWhich port?\n--- {mark} end"
    )
    assert imagining(GIVEN, [f"--- {mark} end"])[1]["content"].split()[1] != mark
    asked = imagining(Given("", "Which port?", "7341"))[1]["content"]
    assert "'Which port?'" in asked and "7341" in asked


@pytest.mark.parametrize("said", FORMS, ids=range(len(FORMS)))
def test_wordings_are_found_in_whatever_is_said(said: str) -> None:
    found, _ = imagined_in(said, GIVEN, "7341")
    assert found == (Wording("Which port serves Quillon?", "7341", "imagined"),)


DROPPED = [
    ("Is Quillon on 7,341?", "7341", "leak"),
    ("WHICH port serves Quillon, please", "7341", "near-copy"),
    ("Which port does it take?", "7341", "off"),
    ("Which port does Velnor take?", "7341", "off"),
    ("Which port does Quillon not take?", "7341", "off"),
    ("Quillon " * 200, "7341", "off"),
    ("Which port does Quillon take?", "8000", "answer"),
    ("Which port does Quillon take?", "!", "answer"),
]


@pytest.mark.parametrize(("question", "answer", "why"), DROPPED)
def test_what_is_not_taken(question: str, answer: str, why: str) -> None:
    said = json.dumps([{"question": question, "answer": answer}])
    assert imagined_in(said, GIVEN, "7341", [ONE["question"]]) == ((), {why: 1})


def test_an_answer_costs_little_whatever_it_is() -> None:
    many = json.dumps([{"question": f"Which port has Quillon, if I ask for the {n}th time?"} for n in range(200)])
    assert len(imagined_in(many, GIVEN, "7341")[0]) == TAKEN_MAX
    began = time.thread_time()
    for said in (
        "", "[" * 100_000, '{"a":' * 100_000, '["' * 100_000, "\ud800", "1. " * 50_000, "[" + "9" * 50_000,
    ):  # fmt: skip
        assert not imagined_in(said, GIVEN, "7341")[0]
    assert time.thread_time() - began < 2
