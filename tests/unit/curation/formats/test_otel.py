"""From spans of OpenTelemetry to what is learned of them."""

import json

from support.log_samples.otel import BATCHES, BROKEN, DRIFT, FACTS, TOOLS, batch, span
from support.readings import evidence, examples, learned, read

from apollod.curation.formats.otel import READER
from apollod.curation.formats.table import ReaderTable
from apollod.wire.records import decode_record


def test_each_call_of_a_model_is_an_example() -> None:
    reading = read(READER, *BATCHES)
    asked = ["user: Fix it", "assistant: ls{'of': '.'}", "tool: a.py"]
    assert examples(reading) == [
        ["system: Be terse.", *asked, "assistant*: [hm] Done."],
        ["user: Fix it", "assistant*: ls{'of': '.'}"],
    ]
    assert (reading.bad, reading.counts) == (
        [],
        {
            "dropped: a span of something else": 1,
            "dropped: a span of invoke_agent": 1,
            "dropped: an answer that was cut off": 1,
            "dropped: a span without its messages; switch on that content is captured": 1,
        },
    )


def test_where_it_comes_from_and_what_shows_its_worth() -> None:
    moment = read(READER, *BATCHES).moments[0]
    first = learned(moment)
    origin = first.origin
    assert (origin.session, origin.agent, origin.model) == ("s1", "helper", "apollo")
    assert (origin.records, origin.responses) == (("p1",), ("r1",))
    assert evidence(moment) == [("evaluation", "good", "helpful yes")]
    (tool,) = decode_record(first.record.canonical).tools  # type: ignore[union-attr]
    assert tool == {
        "type": "function",
        "function": {key: TOOLS[0][key] for key in ("name", "description", "parameters")},
    }


def test_drift_is_counted_and_the_rest_is_read() -> None:
    reading = read(READER, *DRIFT)
    assert examples(reading) == ["another model's answers"]
    assert examples(reading, models=("*",)) == [
        ["user: Fix it", "assistant: ls{'of': '.'}", 'tool: {"files":["a.py"]}', "assistant*: So."]
    ]
    assert reading.counts == {"unknown: operation: dream": 1, "dropped: logs or metrics": 1, "unknown: batch": 1}


CALL = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"of": "."}'}}
CONTENT = [
    {"role": "user", "content": "Fix it"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": "a.py", "tool_call_id": "c1"},
]


def test_messages_with_content_are_read_like_those_with_parts() -> None:
    """As instrumentations write them that record the messages of the request."""
    answer = [{"role": "assistant", "content": [{"type": "text", "text": "Done."}], "finish_reason": "stop"}]
    facts = {**FACTS, "gen_ai.input.messages": json.dumps(CONTENT), "gen_ai.output.messages": answer}
    reading = read(READER, batch(span(facts)))
    assert examples(reading) == [["user: Fix it", "assistant: ls{'of': '.'}", "tool: a.py", "assistant*: Done."]]
    call = {**FACTS, "gen_ai.input.messages": CONTENT[:1], "gen_ai.output.messages": json.dumps(CONTENT[1:2])}
    assert examples(read(READER, batch(span(call)))) == [["user: Fix it", "assistant*: ls{'of': '.'}"]]


def test_a_span_that_failed_is_not_learned() -> None:
    answer = [{"role": "assistant", "content": "Do"}]
    facts = {**FACTS, "gen_ai.input.messages": CONTENT[:1], "gen_ai.output.messages": answer}
    failed = [span(facts, status={"code": code}) for code in ("STATUS_CODE_ERROR", 2)]
    reading = read(READER, batch(*failed, span(facts, status={"code": "STATUS_CODE_OK"}), span(facts, status={})))
    assert examples(reading) == [["user: Fix it", "assistant*: Do"]] * 2
    assert reading.counts == {"dropped: a span that ended with an error": 2}


def test_what_is_broken_is_said_in_a_line() -> None:
    reading = read(READER, *BROKEN)
    assert [bad.line for bad in reading.bad] == [1, 2, 3, 4, 6, 7]
    assert "cut by a limit" in reading.bad[0].reason
    assert all("\n" not in bad.reason for bad in reading.bad)


def test_it_is_recognised_by_its_first_batch() -> None:
    assert ReaderTable().recognise("traces.jsonl", BATCHES[0]).name == "otel-genai"
    assert ReaderTable().recognise("a.jsonl", b'{"text": "resourceSpans"}\n').name == "records"
