"""What a rating makes of an answer."""

import json

import pytest

from apollod.core.events import Sampled
from apollod.curation.captured import Captured
from apollod.curation.rated import corrected, praised
from apollod.errors import RecordRefused

ANSWER = Captured("r", (1, 2), (3, 4), "It is miso.")
PROMPT = "<|im_start|>user\nwhat?<|im_end|>\n<|im_start|>assistant\n"


def test_a_good_answer_is_its_tokens() -> None:
    line = praised(ANSWER, PROMPT, "tiny")
    assert json.loads(line.record) == {"completion": "It is miso.", "prompt": PROMPT}
    assert line.responses[0].sampled == Sampled("r", (3, 4), (1, 2))
    assert (line.origin.responses, line.origin.model) == (("r",), "tiny")


def test_a_correction_comes_after_the_tokens_that_were_asked_and_ends_as_the_engine_ends() -> None:
    line = corrected(ANSWER, PROMPT, "It is natto.", 7, "tiny")
    assert json.loads(line.record)["completion"] == "It is natto."
    assert line.responses[0].sampled == Sampled("r", (), (1, 2), 7)
    assert line.example != praised(ANSWER, PROMPT, "tiny").example


def test_a_thought_that_the_prompt_has_opened_is_closed_first() -> None:
    line = corrected(ANSWER, PROMPT + "<think>\n", "Natto.", 7, "tiny")
    assert json.loads(line.record)["completion"] == "\n</think>\n\nNatto."
    line = corrected(ANSWER, PROMPT + "<think>\n\n</think>\n\n", "Natto.", 7, "tiny")
    assert json.loads(line.record)["completion"] == "Natto."


@pytest.mark.parametrize("correction", ["", " \n", "It is miso.", " It is miso.\n"])
def test_a_correction_has_to_say_something_else(correction: str) -> None:
    with pytest.raises(RecordRefused):
        corrected(ANSWER, PROMPT, correction, 7, "tiny")
