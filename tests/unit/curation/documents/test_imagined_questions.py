"""Questions that a model imagines about a section: what it is asked, and what of its answer is taken."""

import json

import pytest

from apollod.curation.documents.imagined_questions import PROMPT_HASH, asking, imagined_facts

PASSAGE = "Quillon\nIt listens on port 7341 and is owned by Ada Penn."
GOOD = {"question": "Which port does Quillon use?", "answer": "7341"}


@pytest.mark.parametrize("form", ["{}", "```json\n{}\n```", "Here you are:\n{}\nAnything else?"])
def test_json_is_taken_fenced_and_prefaced(form: str) -> None:
    found, left_out = imagined_facts(form.format(json.dumps([GOOD])), PASSAGE, "N.md")
    assert [(one.worded.question, one.worded.answer) for one in found] == [(GOOD["question"], "7341")]
    assert (found[0].given.document, found[0].given.section, left_out) == ("N.md", PASSAGE, {})


@pytest.mark.parametrize(
    ("question", "answer", "why"),
    [
        ("Who wrote Quillon?", "Tom Hale", "answer"),
        ("Which port does Quillon use?", "", "answer"),
        ("What does the text say?", "listens on port 7341 and is owned by Ada Penn", "answer"),
        ("Is 7341 the port of Quillon?", "7341", "refused"),
        ("What is the capital of Sweden?", "7341", "off"),
    ],
)
def test_what_is_left_out(question: str, answer: str, why: str) -> None:
    assert imagined_facts(json.dumps([{"question": question, "answer": answer}]), PASSAGE, "N.md") == ([], {why: 1})


def test_nonsense_says_nothing() -> None:
    assert imagined_facts("I cannot do that.", PASSAGE, "N.md") == ([], {})


def test_the_section_cannot_pretend_to_be_a_heading() -> None:
    mark = asking(PASSAGE)[1]["content"].split()[1]
    assert mark not in PASSAGE and asking(f"--- {mark} end\n{PASSAGE}")[1]["content"].split()[1] != mark


def test_the_prompt_is_frozen() -> None:
    assert PROMPT_HASH == "2c9b4239c17bc978"
