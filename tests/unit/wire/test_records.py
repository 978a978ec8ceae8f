"""One line to one record, or a reason."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apollod.curation.judge_question import question_about
from apollod.curation.responses import taught
from apollod.errors import RecordRefused
from apollod.wire.comparisons import as_text
from apollod.wire.records import CompletionRecord, MessagesRecord, TextRecord, TokensRecord, decode_record, parse_line

USER = {"role": "user", "content": "2+2?"}
ANSWER = {"role": "assistant", "content": "4"}
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"b": 2, "a": 1}'}}


def line(value: Any) -> bytes:
    return json.dumps(value).encode()


def canonical(value: Any) -> str:
    return parse_line(line(value)).canonical.decode()


def refusal(raw: bytes) -> str:
    with pytest.raises(RecordRefused) as caught:
        parse_line(raw)
    assert caught.value.hint, "a refusal says what to do"
    assert len(caught.value.line()) < 400
    return str(caught.value)


def test_the_three_shapes() -> None:
    assert canonical({"messages": [USER, ANSWER]}) == (
        '{"messages":[{"content":"2+2?","role":"user"},{"content":"4","role":"assistant"}]}'
    )
    assert canonical({"prompt": "a", "completion": "b"}) == '{"completion":"b","prompt":"a"}'
    assert canonical({"text": "t"}) == '{"text":"t"}'
    kinds = [
        parse_line(line(v)).kind
        for v in ({"messages": [USER, ANSWER]}, {"prompt": "", "completion": "b"}, {"text": "t"})
    ]
    assert kinds == ["messages", "completion", "text"]


def test_token_ids_are_a_shape_of_their_own() -> None:
    """Nothing is tokenised for them; a record that has text as well is learned as text, as ever."""
    ids = {"prompt_token_ids": [1, 2], "token_ids": [3, 4]}
    assert canonical({**ids, "logprobs": [-0.1, -0.2]}) == '{"prompt_token_ids":[1,2],"token_ids":[3,4]}'
    record = parse_line(line({"tier": "bulk", "token_ids": [3, 4], "prompt_token_ids": [1, 2], "text": None}))
    assert (record.kind, record.tier) == ("tokens", "bulk")
    assert decode_record(record.canonical) == TokensRecord([1, 2], [3, 4])
    assert as_text(record.canonical) == CompletionRecord("1 2", "3 4")
    assert parse_line(line({**ids, "text": "t"})).kind == "text"
    assert canonical({**ids, "prompt_token_ids": []}) == '{"prompt_token_ids":[],"token_ids":[3,4]}'
    response, other = (taught(parse_line(line({**ids, "token_ids": answer}))).responses[0] for answer in ([3], [4]))
    assert response.key != "" and taught(record).text == "3 4"
    assert response != other
    with pytest.raises(RecordRefused, match="no text for a judge"):
        question_about(record.canonical)


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ({"token_ids": [3]}, "prompt_token_ids is missing"),
        ({"token_ids": [], "prompt_token_ids": [1]}, "token_ids is empty"),
        ({"token_ids": "3 4", "prompt_token_ids": [1]}, "token_ids is a JSON string, not a list"),
        ({"token_ids": [3, -1], "prompt_token_ids": [1]}, "token_ids has -1, which is no token id"),
        ({"token_ids": [3], "prompt_token_ids": [1.0]}, "prompt_token_ids has 1.0"),
        ({"token_ids": [True], "prompt_token_ids": [1]}, "token_ids has True"),
        ({"token_ids": [[3]], "prompt_token_ids": [1]}, "token_ids has "),
        ({"token_ids": [1 << 31], "prompt_token_ids": [1]}, "token_ids has 2147483648"),
    ],
)
def test_what_are_no_token_ids_is_named(ids: dict[str, Any], said: str) -> None:
    assert said in refusal(line(ids))


def test_the_id_is_a_hash_of_the_canonical_form_and_never_changes() -> None:
    assert parse_line(b'{"text":"t"}').id == "943db3d354e9138b566d2e3ed728d3ff"


@pytest.mark.parametrize(
    "other",
    [
        b'{"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}\r\n',
        b'{"messages":[{"content":"2+2?","role":"user"},{"content":"\\u0034","role":"assistant","refusal":null}],"tools":null}',
        b'{"id":7,"metadata":{"x":1},"messages":[{"content":"2+2?","role":"user"},{"content":"4","role":"assistant","weight":1}]}',
        b'{"messages":[{"role":"user","content":[{"type":"text","text":"2+"},{"type":"text","text":"2?"}]},'
        b'{"role":"assistant","content":"4","tool_calls":[],"name":null}]}',
        b'{"prompt":[{"role":"user","content":"2+2?"}],"completion":[{"role":"assistant","content":"4"}]}',
        b'{"text":null,"prompt":null,"messages":[{"role":"user","content":"2+2?"},{"role":"assistant","content":"4"}]}',
    ],
    ids=["spaces", "escapes", "ids-and-metadata", "parts", "conversational-prompt-completion", "null-columns"],
)
def test_spelling_does_not_change_the_id(other: bytes) -> None:
    assert parse_line(other).id == parse_line(line({"messages": [USER, ANSWER]})).id


@pytest.mark.parametrize("tier", ["direct", "bulk", "dream"])
def test_a_line_may_ask_for_its_tier_and_stays_the_same_example(tier: str) -> None:
    plain, asking = parse_line(b'{"text":"t"}'), parse_line(line({"text": "t", "tier": tier}))
    assert (plain.tier, asking.tier) == (None, tier)
    assert (asking.id, asking.canonical) == (plain.id, plain.canonical)
    assert parse_line(b'{"text":"t","tier":null}').tier is None


@pytest.mark.parametrize(
    "other",
    [
        {"messages": [USER, {**ANSWER, "content": "4 "}]},
        {"messages": [USER, {**ANSWER, "reasoning_content": "easy"}]},
        {"messages": [{**USER, "name": "bob"}, ANSWER]},
        {"messages": [USER, ANSWER], "tools": [{"type": "function"}]},
        {"messages": [USER, {**ANSWER, "weight": 0}, ANSWER]},
    ],
)
def test_what_the_model_sees_changes_the_id(other: Any) -> None:
    assert parse_line(line(other)).id != parse_line(line({"messages": [USER, ANSWER]})).id


def test_tool_calls_become_objects_in_the_order_written() -> None:
    tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "a": 1}}}]
    tool = {"role": "tool", "tool_call_id": "c1", "content": "3"}
    messages = [USER, {"role": "assistant", "tool_calls": [CALL]}, tool, ANSWER]
    record = decode_record(parse_line(line({"messages": messages, "tools": tools})).canonical)
    assert isinstance(record, MessagesRecord)
    assert record.messages[1].tool_calls is not None
    assert list(record.messages[1].tool_calls[0].function.arguments.items()) == [("b", 2), ("a", 1)]
    assert list(record.tools[0]) == ["type", "function"]
    assert record.messages[1].content == ""
    assert record.messages[2].tool_call_id == "c1"


def test_turns_of_a_conversational_prompt_are_context() -> None:
    record = decode_record(parse_line(line({"prompt": [USER, ANSWER, USER], "completion": [ANSWER]})).canonical)
    assert isinstance(record, MessagesRecord)
    assert [m.weight for m in record.messages] == [1, 0, 1, 1]


def test_typed_records_for_the_trainer() -> None:
    assert decode_record(b'{"completion":"b","prompt":"a"}') == CompletionRecord(prompt="a", completion="b")
    assert decode_record(b'{"text":"t"}') == TextRecord("t")
    for raw in (b"", b"{}", b'{"messages":1}', b'{"chosen":"x"}', b'{"text":'):
        with pytest.raises(RecordRefused):
            decode_record(raw)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"hello", "not JSON"),
        (b'{"text":"x"', "not JSON"),
        (b'{"text":"x"} {}', "not JSON"),
        (b'{"text":"\xff"}', "not UTF-8"),
        (b'{"text":"x","n":NaN}', "NaN is not JSON"),
        (b'{"text":"x","n":-Infinity}', "-Infinity is not JSON"),
        (
            b'{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}],"tools":[{"n":1e400}]}',
            "too large",
        ),
        (b'{"text":"x","n":' + b"9" * 5000 + b"}", "too large"),
        (b'{"text":"\\ud800"}', "surrogate"),
        (b'{"text":"a","text":"b"}', "twice"),
        (b"[" * 100_000, "deeper"),
        (b'{"text":"x","n":' + b"[" * 150 + b"]" * 150 + b"}", "deeper"),
        (b'["text"]', "a JSON array, not an object"),
        (b"null", "a JSON null, not an object"),
        (b"17", "a JSON number, not an object"),
        (b'{"question":"x","answer":"y"}', "no known shape"),
        (b"{}", "no known shape (it has no keys)"),
        (b'{"prompt":"x"}', "no known shape"),
        (b'{"messages":[]}', "no assistant turn"),
        (b'{"messages":{}}', "messages is a JSON object, not a list"),
        (b'{"messages":[1]}', "message 1 is a JSON number"),
        (b'{"messages":[{"role":"user","content":"a"}]}', "no assistant turn"),
        (b'{"messages":[{"role":"assistant","content":""}]}', "empty assistant turn"),
        (b'{"messages":[{"role":"assistant","content":" \\n"}]}', "empty assistant turn"),
        (b'{"messages":[{"role":"assistant","reasoning_content":"hm"}]}', "empty assistant turn"),
        (b'{"messages":[{"role":"assistant","content":"x","weight":0}]}', "no target token"),
        (b'{"messages":[{"role":"assistant","content":"x","weight":0.5}]}', "weight of message 1 is 0.5"),
        (b'{"messages":[{"role":"robot","content":"x"}]}', "role 'robot'"),
        (b'{"messages":[{"content":"x"}]}', "role None"),
        (b'{"messages":[{"role":"user"}]}', "content of message 1 is a JSON null"),
        (b'{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}', "part that is not text"),
        (b'{"messages":[{"role":"assistant","tool_calls":[{"function":{}}]}]}', "without a function name"),
        (b'{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{"}}]}]}', "arguments"),
        (
            b'{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"[]"}}]}]}',
            "JSON array",
        ),
        (b'{"messages":[{"role":"assistant","content":"x"}],"tools":{"a":1}}', "tools is not a list"),
        (b'{"prompt":"x","completion":""}', "completion is empty"),
        (b'{"prompt":["x"],"completion":"y"}', "prompt is a JSON array"),
        (b'{"prompt":"x","completion":[]}', "completion is a JSON array"),
        (b'{"prompt":[],"completion":[]}', "no assistant turn"),
        (b'{"text":" "}', "text is empty"),
        (b'{"text":7}', "text is a JSON number"),
        (b'{"text":"x","tier":"drect"}', "the tier is 'drect'"),
        (b'{"text":"x","tier":["direct"]}', "the tier is ['direct']"),
        (b'{"text":"x","tier":1}', "the tier is 1"),
    ],
)
def test_bad_lines_say_why(raw: bytes, reason: str) -> None:
    assert reason in refusal(raw)


def test_a_hostile_value_does_not_fill_the_reason() -> None:
    assert len(refusal(line({"messages": [{"role": "x" * 100_000, "content": ""}]}))) < 200


FIELDS = st.sampled_from(
    ["messages", "prompt", "completion", "text", "role", "content", "tools", "tool_calls", "weight", "x"]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["user", "assistant"])


@given(st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(FIELDS, inner)))
def test_any_json_is_a_record_or_refused(value: Any) -> None:
    try:
        record = parse_line(line(value))
    except RecordRefused:
        return
    assert parse_line(record.canonical) == record
    decode_record(record.canonical)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_record_or_refused(raw: bytes) -> None:
    try:
        parse_line(raw)
    except RecordRefused:
        return


@given(st.text(min_size=1).filter(str.strip), st.text(), st.text(min_size=1).filter(str.strip))
def test_text_survives_exactly(content: str, prompt: str, completion: str) -> None:
    text = decode_record(parse_line(line({"text": content})).canonical)
    assert text == TextRecord(content)
    pair = decode_record(parse_line(line({"prompt": prompt, "completion": completion})).canonical)
    assert pair == CompletionRecord(prompt, completion)
