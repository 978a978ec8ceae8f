"""Keys of answers: the same answer to the same question is known, however it was written down; others are not."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from apollod.core.facts.intake.repeats import Known, Repeated
from apollod.core.inputs import Line
from apollod.curation.responses import taught
from apollod.wire.records import Record, parse_line

ASK = {"role": "user", "content": "what is  two and\ntwo?"}
FOUR = {"role": "assistant", "content": "four"}


def record(*messages: dict[str, Any], **more: Any) -> Record:
    return parse_line(json.dumps({"messages": messages, **more}).encode())


def keys(*messages: dict[str, Any], **more: Any) -> list[str]:
    return [one.key for one in taught(record(*messages, **more)).responses]


def call(arguments: Any, id_: str = "c1", name: str = "run") -> dict[str, Any]:
    called = {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": "", "tool_calls": [called]}


def test_the_same_answer_has_one_key_whatever_it_came_in() -> None:
    (key,) = keys(ASK, FOUR)
    assert keys({"role": "system", "content": "be short"}, ASK, FOUR) == [key]
    assert keys({**ASK, "content": "what is two and two?"}, {**FOUR, "content": " four\n"}) == [key]
    assert keys(ASK, {**FOUR, "reasoning_content": "2 + 2"}) == [key], "many logs do not keep what was thought"
    assert keys({"role": "user", "content": "hi"}, {**FOUR, "content": "hi", "weight": 0}, ASK, FOUR) == [key]
    pair = parse_line(json.dumps({"prompt": ASK["content"], "completion": "four"}).encode())
    assert [one.key for one in taught(pair).responses] == [key]
    one = keys(ASK, call({"a": 1, "b": " x"}))
    assert one == keys(ASK, call('{"b": " x", "a": 1}', "other"))


def test_another_question_answer_or_call_has_another_key() -> None:
    done = {"role": "assistant", "content": "Done."}
    result = {"role": "tool", "content": ""}
    different = [
        keys(ASK, FOUR),
        keys(ASK, {**FOUR, "content": "five"}),
        keys({**ASK, "content": "and now?"}, FOUR),
        keys({"role": "user", "content": "one"}, call({}), result, done)[1:],
        keys({"role": "user", "content": "two"}, call({}), result, done)[1:],
        keys({"role": "user", "content": "two"}, call({}), {**result, "content": "x"}, done)[1:],
        keys(ASK, call({"a": 1})),
        keys(ASK, call({"a": 2})),
        keys(ASK, call({"a": 1}, name="walk")),
        keys(ASK, {**call({"a": 1}), "content": "I run."}),
    ]
    assert len({key for (key,) in different}) == len(different)


TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).filter(str.strip)
TURNS = st.lists(st.tuples(TEXT, TEXT, st.booleans()), min_size=1, max_size=5)


@given(turns=TURNS, tools=st.booleans(), chosen=st.randoms(use_true_random=False))
def test_what_is_known_becomes_context_and_the_rest_of_the_record_stays(
    turns: list[tuple[str, str, bool]], tools: bool, chosen: Any
) -> None:
    messages = []
    for ask, answer, calls in turns:
        more = {"tool_calls": call({"x": answer})["tool_calls"]} if calls else {}
        messages += [{"role": "user", "content": ask}, {"role": "assistant", "content": answer, **more}]
    given_ = record(*messages, **({"tools": [{"name": "}]"}]} if tools else {}))
    responses = taught(given_).responses
    known = {one.key: "before" for one in responses if chosen.random() < 0.5}
    line = Line(number=1, example=given_.id, record=given_.canonical, responses=responses, signature="s")
    sifted = Known(set(), known, {}).sift(line, 0.9)
    fresh = [one.key for one in responses if one.key not in known]
    if not fresh:
        assert sifted == Repeated(of="before")
        return
    assert not isinstance(sifted, Repeated)
    masked, repeated = sifted
    expected = [
        {**message, "weight": 0} if message["role"] == "assistant" and responses[n // 2].key in known else message
        for n, message in enumerate(json.loads(given_.canonical)["messages"])
    ]
    again = parse_line(masked.record)
    assert (again.canonical, again.id) == (masked.record, masked.example), "it is canonical as it is"
    assert json.loads(masked.record)["messages"] == expected
    assert [one.key for one in taught(again).responses] == fresh
    assert repeated == (("before",) if known else ())
