"""Which captured response an answer of a log is; what a rating makes of an answer."""

import json
from collections.abc import Sequence

import pytest

from apollod.core.facts.intake.events import Origin, Removed, Sampled
from apollod.core.facts.intake.inputs import Line, response_key
from apollod.core.facts.intake.repeats import Known, Repeated
from apollod.curation.preferences import Preferences
from apollod.curation.responses import Captured, corrected_line, joined, rated_line, says, taught
from apollod.errors import RecordRefused
from apollod.wire.comparisons import PairRecord, RatedRecord, decode_learned
from apollod.wire.records import CompletionRecord, parse_line, with_sampled

ONE = Captured("r1", (1, 2), (3, 4), "It is miso.")
TWO = Captured("r2", (1, 2, 3), (5, 6), "<think>\nhm\n</think>\n\nSoy\n  sauce.")
SFT = Preferences()
KEPT = {"r1": [ONE], "r2": [TWO], "n": [ONE._replace(name="n"), TWO._replace(name="n#1")]}


def line(*turns: tuple[str, str] | dict[str, object], responses: tuple[str, ...], removed: bool = False) -> Line:
    messages = [turn if isinstance(turn, dict) else {"role": turn[0], "content": turn[1]} for turn in turns]
    record = parse_line(json.dumps({"messages": messages}).encode())
    gone = (Removed(0, 0, "secret", "memory"),) if removed else ()
    answers = taught(record).responses
    origin = Origin(responses=responses)
    return Line(1, record.id, record.canonical, origin=origin, removed=gone, responses=answers)


def captured(response: str) -> Sequence[Captured]:
    return KEPT.get(response, [])


def sampled(line: Line) -> list[Sampled]:
    return [one.sampled for one in joined(line, captured).responses]


ASKED, SAID = ("user", "what is it called?"), ("assistant", "It is miso.")
MORE, ALSO = ("user", "and that?"), ("assistant", "Soy sauce.")


def test_answers_get_the_tokens_of_the_responses_that_the_log_names() -> None:
    both = line(ASKED, SAID, MORE, ALSO, responses=("r1", "r2"))
    assert sampled(both) == [Sampled("r1", (3, 4), (1, 2)), Sampled("r2", (5, 6))]


def test_an_answer_without_a_response_has_none_and_the_others_theirs() -> None:
    assert sampled(line(ASKED, SAID, MORE, ALSO, responses=("r2",))) == [Sampled(), Sampled("r2", (5, 6))]
    assert sampled(line(ASKED, SAID, MORE, ALSO, responses=("gone", "r2"))) == [Sampled(), Sampled("r2", (5, 6))]
    context = {"role": "assistant", "content": "It is miso.", "weight": 0}
    assert sampled(line(ASKED, context, MORE, ALSO, responses=("r2",))) == [Sampled("r2", (5, 6), (1, 2, 3))]


def test_what_the_client_edited_is_not_what_was_sampled() -> None:
    edited = line(ASKED, ("assistant", "It is natto."), responses=("r1",))
    assert joined(edited, captured) == edited


def test_where_something_was_stripped_the_prompt_is_not_the_engines() -> None:
    assert sampled(line(ASKED, SAID, responses=("r1",), removed=True)) == [Sampled("r1", (3, 4))]


def test_of_several_choices_it_is_the_one_that_says_it() -> None:
    assert sampled(line(ASKED, ALSO, responses=("n",))) == [Sampled("n#1", (5, 6), (1, 2, 3))]


def test_a_line_without_responses_is_left_alone() -> None:
    plain = line(ASKED, SAID, responses=())
    assert joined(plain, captured) is plain


def test_calls_are_known_by_their_names() -> None:
    call = {"content": "", "tool_calls": [{"type": "function", "function": {"name": "look_up", "arguments": {}}}]}
    assert says(call, '<tool_call>\n{"name": "look_up", "arguments": {}}\n</tool_call>')
    assert not says(call, '{"name": "delete"}') and not says({"content": ""}, "anything")


def test_one_response_is_one_answer_whatever_two_logs_make_of_its_text() -> None:
    first = joined(line(ASKED, SAID, responses=("r1",)), captured)
    second = joined(line(("user", "called?"), ("assistant", "It is  miso"), responses=("r1",)), captured)
    assert first.responses[0].key != second.responses[0].key
    assert first.responses[0].keys[1] == second.responses[0].keys[1] == response_key("r1")
    known = Known({first.example}, {key: first.example for key in first.responses[0].keys}, {})
    assert known.sift(second, 0.0) == Repeated(of=first.example)


ANSWER = Captured("r", (1, 2), (3, 4), "It is miso.")
PROMPT = "<|im_start|>user\nwhat?<|im_end|>\n<|im_start|>assistant\n"


def test_a_good_answer_is_its_tokens() -> None:
    line = rated_line(ANSWER, PROMPT, True, "tiny", SFT)
    assert json.loads(line.record) == {"completion": "It is miso.", "prompt": PROMPT}
    assert line.responses[0].sampled == Sampled("r", (3, 4), (1, 2))
    assert (line.origin.responses, line.origin.model) == (("r",), "tiny")


def test_a_correction_comes_after_the_tokens_that_were_asked_and_ends_as_the_engine_ends() -> None:
    line = corrected_line(ANSWER, PROMPT, "It is natto.", 7, "tiny", SFT)
    assert json.loads(line.record)["completion"] == "It is natto."
    assert line.responses[0].sampled == Sampled("r", (), (1, 2), 7)
    assert line.example != rated_line(ANSWER, PROMPT, True, "tiny", SFT).example


def test_a_thought_that_the_prompt_has_opened_is_closed_first() -> None:
    line = corrected_line(ANSWER, PROMPT + "<think>\n", "Natto.", 7, "tiny", SFT)
    assert json.loads(line.record)["completion"] == "\n</think>\n\nNatto."
    line = corrected_line(ANSWER, PROMPT + "<think>\n\n</think>\n\n", "Natto.", 7, "tiny", SFT)
    assert json.loads(line.record)["completion"] == "Natto."


@pytest.mark.parametrize("correction", ["", " \n", "It is miso.", " It is miso.\n"])
def test_a_correction_has_to_say_something_else(correction: str) -> None:
    with pytest.raises(RecordRefused):
        corrected_line(ANSWER, PROMPT, correction, 7, "tiny", SFT)


def test_where_ratings_are_learned_a_bad_answer_is_one_to_leave() -> None:
    assert rated_line(ANSWER, PROMPT, False, "tiny", SFT) is None
    for good in (True, False):
        line = rated_line(ANSWER, PROMPT, good, "tiny", Preferences(ratings="kto"))
        assert line is not None and line.decided
        assert [bool(one.key) for one in line.responses] == [True] * good, "a bad answer was not learned by this key"
        record = decode_learned(with_sampled(line.record, line.sampled))
        assert isinstance(record, RatedRecord) and record.rated.good is good
        answer = record.answer()
        assert isinstance(answer, CompletionRecord) and answer.sampled == [Sampled("r", (3, 4), (1, 2))]


def test_where_pairs_are_learned_a_correction_is_the_better_of_two_answers() -> None:
    line = corrected_line(ANSWER, PROMPT, "It is natto.", 7, "tiny", Preferences(pairs="dpo"))
    record = decode_learned(with_sampled(line.record, line.sampled))
    assert isinstance(record, PairRecord) and line.decided and line.lesson is None
    better, worse = record.answers()
    assert isinstance(better, CompletionRecord) and isinstance(worse, CompletionRecord)
    assert (better.completion, worse.completion) == ("It is natto.", "It is miso.")
    assert (better.sampled, worse.sampled) == ([Sampled("r", (), (1, 2), 7)], [Sampled("r", (3, 4), (1, 2))])
    assert decode_learned(line.record) != record, "the record itself has no tokens"
