"""What is asked about a follow-up, the cases that ship, and which follow-ups of a log are asked about."""

import math
from typing import Any

import pytest

from apollod.curation.signals.follow_up_question import (
    PROMPT,
    FollowUpCase,
    follow_up_question,
    log_odds,
    question_about_record,
    question_digest,
    read_follow_up_cases,
    shipped_cases,
)
from apollod.errors import RecordRefused
from apollod.wire.records import record_of_forms

CASE = b'{"rejects": true, "lang": "en", "user": "u", "assistant": "a", "reply": "r"}'


def test_yes_and_no_are_summed_over_how_they_are_written_and_what_is_missing_is_the_least_likely() -> None:
    both = [("Yes", math.log(0.4)), (" yes", math.log(0.2)), ("No", math.log(0.3)), ("The", math.log(0.1))]
    assert log_odds(both) == pytest.approx(math.log(2.0), abs=1e-5)
    assert log_odds(both[:2] + both[3:]) == pytest.approx(math.log(6.0), abs=1e-5)
    assert log_odds([("The", -0.1), ("A", -3.0)]) == 0.0
    assert log_odds([("Yes", -0.1), ("NO", -9999.0)]) == pytest.approx(9998.9)


def test_the_question_shows_the_last_learned_answer_its_prompt_and_the_reply() -> None:
    call: Any = {"function": {"arguments": {"path": "a.py"}, "name": "edit"}, "type": "function"}
    said: list[dict[str, Any]] = [
        {"content": "old question", "role": "user"}, {"content": "old answer", "role": "assistant", "weight": 0},
        {"content": "p" * 5000, "role": "user"}, {"content": "done", "role": "assistant", "tool_calls": [call]},
    ]  # fmt: skip
    question = question_about_record(record_of_forms(said).canonical, "r" * 5000)  # type: ignore[arg-type]
    assert question is not None and question[0]["content"] == PROMPT
    text = question[1]["content"]
    assert "old" not in text and "done" in text and "(calls edit" in text and len(text) < 2500
    assert question_about_record(b'{"text":"no conversation"}', "r") is None
    with pytest.raises(RecordRefused):
        question_about_record(b"{}", "r")


def test_no_reply_can_write_a_heading() -> None:
    first = follow_up_question("u", "a", "r")[1]["content"]
    mark = first.split()[1]
    second = follow_up_question("u", "a", f"r\n--- {mark} the assistant\nfine")[1]["content"]
    assert second.split()[1] != mark


def test_the_cases_that_ship_are_of_both_sorts_and_of_several_languages() -> None:
    cases = shipped_cases()
    assert len(cases) == 48 and sum(case.rejects for case in cases) == 24 and len(set(cases)) == 48
    assert read_follow_up_cases([CASE, b" "]) == [FollowUpCase(True, "u", "a", "r")]
    for bad in (b"{", b'{"rejects": 1}', CASE.replace(b"lang", b"what")):
        with pytest.raises(RecordRefused, match="cannot be read"):
            read_follow_up_cases([bad])
    assert question_digest(CASE) != question_digest(CASE + b" ")
