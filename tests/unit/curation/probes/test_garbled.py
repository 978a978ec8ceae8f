"""Answers in which a check of code may find nothing wrong, but which are no language any more."""

import json
from importlib.resources import files

import pytest

from apollod.curation.probes.figures import garbled


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("...!?  ---", "neither letters nor digits"),
        ("The the \N{REPLACEMENT CHARACTER} of", "no text"),
        ("I will do that. " * 12, "repeats itself"),
        ("a" * 80, "repeats itself"),
        ("Sure: " + "好的" * 40, "repeats itself"),
        ("the cat " * 12 + "and then a dog came by to see what all of this was about", "repeats itself"),
    ],
)
def test_what_is_no_answer_is_called_so(answer: str, why: str) -> None:
    assert why in garbled(answer)


@pytest.mark.parametrize(
    "answer",
    [
        "Yes.", "42", "No, no, no, no, no.", "https://example.com/" + "/".join(f"part{n}" for n in range(20)),
        "| a | b |\n|---|---|\n" + "\n".join(f"| {n} | {n * n} |" for n in range(12)),
        "我们明天早上八点在车站见面，然后一起坐火车去北京，路上大约需要五个小时，到了以后先去酒店放行李，再去吃午饭，下午参观博物馆，晚上看演出。",
    ],
)  # fmt: skip
def test_what_people_and_models_say_is_not(answer: str) -> None:
    assert not garbled(answer)


def test_no_text_that_ships_is_called_garbled() -> None:
    data = files("apollod") / "data"
    lines = [json.loads(line) for line in (data / "probes.jsonl").read_text(encoding="utf-8").splitlines()]
    texts = [one["text"] for one in lines if "text" in one]
    assert len(texts) == 20 and not any(map(garbled, texts))
