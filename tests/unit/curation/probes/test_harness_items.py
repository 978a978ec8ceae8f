"""Probes of what a task of lm-evaluation-harness asks: rendered documents and a task's configuration in, lines out."""

import json
import re
from typing import Any

import pytest

from apollod.curation.probes.harness_items import Asked, probe_line
from apollod.curation.probes.probe_lines import probe_of
from apollod.errors import RecordRefused

ARC: dict[str, Any] = {"task": "arc_easy", "output_type": "multiple_choice", "metric_list": [{"metric": "acc"}]}
GSM8K: dict[str, Any] = {
    "task": "gsm8k", "output_type": "generate_until",
    "metric_list": [{"metric": "exact_match", "ignore_case": True,
                     "regexes_to_ignore": [",", "\\$", "(?s).*#### ", "\\.$"]}],
}  # fmt: skip
"""as these tasks are in lm-evaluation-harness 0.4.13"""
HOT = Asked("Question: Which is hot?\nAnswer:", 1, ["ice", "fire", "snow"])


def passes(line: dict[str, Any], answer: str) -> bool:
    probe = probe_of(json.dumps(line).encode(), "x")
    return re.search(str(probe.expect), answer.strip()) is not None


def test_a_choice_is_asked_for_by_its_letter() -> None:
    line = probe_line(ARC, 7, HOT)
    assert (line["id"], line["group"], line["kind"]) == ("arc_easy/7", "arc_easy", "regex")
    (message,) = line["messages"]
    listed = "Question: Which is hot?\nA. ice\nB. fire\nC. snow\n\nAnswer with the letter"
    assert message["role"] == "user" and message["content"].startswith(listed)


@pytest.mark.parametrize(
    "answer",
    ["B", "B.", "(B)", "**B**", "B. fire", "B) fire", "The answer is B.", "Answer: B", "fire", "Fire.".lower()],
)
def test_the_right_letter_or_the_right_text_passes(answer: str) -> None:
    assert passes(probe_line(ARC, 7, HOT), answer)


@pytest.mark.parametrize(
    "answer", ["A", "C. fire", "b", "Bad question", "B or C", "Not fire", "ice, not fire", "firewood"]
)
def test_anything_else_does_not(answer: str) -> None:
    assert not passes(probe_line(ARC, 7, HOT), answer)


def test_an_article_is_no_choice() -> None:
    line = probe_line(ARC, 1, Asked("Q?", 0, ["goat", "cow"]))
    assert passes(line, "A") and not passes(line, "A cow")


def test_a_task_that_lists_its_choices_by_letter_is_asked_as_it_is() -> None:
    asked = Asked("Which is hot?\nA. ice\nB. fire\nAnswer:", "B", ["A", "B"])
    line = probe_line(ARC | {"task": "mmlu_physics"}, 0, asked)
    content = line["messages"][0]["content"]
    assert content.startswith(f"{asked.text[:-8]}\n\nAnswer with") and passes(line, "B") and not passes(line, "A")


GOLD = "She has 40+1000=<<40+1000=1040>>1040 apples.\n#### 1,040"


@pytest.mark.parametrize(
    "answer", ["1040", "1,040", "40 + 1,000 =\n1040", "**1040**.", "$1,040.00", "It is 1040 apples."]
)
def test_a_number_passes_as_the_last_one_said(answer: str) -> None:
    assert passes(probe_line(GSM8K, 0, Asked("Question: How many?\nAnswer:", GOLD)), answer)


@pytest.mark.parametrize("answer", ["41040", "1040.5", "10400", "1040, or 7", "-1040", "1,0,4,0 no", "", "104"])
def test_another_number_does_not(answer: str) -> None:
    assert not passes(probe_line(GSM8K, 0, Asked("Question: How many?\nAnswer:", GOLD)), answer)


def test_what_the_task_ignores_is_no_part_of_the_answer_and_its_prompt_ends_with_the_question() -> None:
    line = probe_line(GSM8K, 0, Asked("Question: How many?\nAnswer:", GOLD))
    assert line["messages"][0]["content"].startswith("Question: How many?\n\nAnswer in at most 80 words")
    unread = probe_line(GSM8K | {"metric_list": None}, 0, Asked("How many?", "#### 7"))
    assert passes(unread, "#### 7") and not passes(unread, "7")


def test_a_text_passes_where_it_is_said_and_any_of_several_does() -> None:
    line = probe_line(GSM8K | {"task": "trivia"}, 0, Asked("Who wrote it?", ["Will Shakespeare", "Shakespeare"]))
    assert passes(line, "It was written by shakespeare.") and not passes(line, "Shakespearean actors")


@pytest.mark.parametrize(
    ("config", "asked", "why"),
    [
        (ARC | {"output_type": "loglikelihood"}, HOT, "is of output type loglikelihood"),
        (ARC, HOT._replace(text=2), "its question is no text"),
        (ARC, HOT._replace(target=3), "its right choice is 3"),
        (ARC, HOT._replace(target="steam"), "its right choice is 'steam'"),
        (ARC, HOT._replace(target=True and -1), "its right choice is -1"),
        (GSM8K, Asked("Q?", "#### "), "nothing is left"),
    ],
)
def test_what_cannot_be_a_probe_is_refused_with_the_reason(config: dict[str, Any], asked: Asked, why: str) -> None:
    with pytest.raises(RecordRefused, match=re.escape(why)) as refused:
        probe_line(config, 0, asked)
    assert refused.value.hint
