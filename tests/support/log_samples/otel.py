"""Batches of spans in OTLP JSON, as OpenTelemetry's file exporter writes them."""

import json


def value(of: object) -> dict[str, object]:
    """A JSON value as OTLP has it."""
    if isinstance(of, dict):
        return {"kvlistValue": {"values": [{"key": key, "value": value(inner)} for key, inner in of.items()]}}
    if isinstance(of, list):
        return {"arrayValue": {"values": [value(inner) for inner in of]}}
    return {"intValue": str(of)} if isinstance(of, int) else {"stringValue": of}


def attributes(facts: dict[str, object]) -> list[dict[str, object]]:
    return [{"key": key, "value": value(of)} for key, of in facts.items()]


def span(facts: dict[str, object], **more: object) -> dict[str, object]:
    return {"traceId": "t1", "spanId": "p1", "name": "chat apollo", "attributes": attributes(facts), **more}


def batch(*spans: dict[str, object]) -> bytes:
    resource = {"attributes": attributes({"service.name": "app"})}
    return json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]}).encode() + b"\n"


def text(role: str, words: str, **more: object) -> dict[str, object]:
    return {"role": role, "parts": [{"type": "text", "content": words}], **more}


CALL = {"type": "tool_call", "id": "c1", "name": "ls", "arguments": {"of": "."}}
RESULT = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "result": "a.py"}]}
FACTS: dict[str, object] = {
    "gen_ai.operation.name": "chat", "gen_ai.request.model": "apollo", "gen_ai.response.id": "r1",
    "gen_ai.conversation.id": "s1", "gen_ai.agent.name": "helper", "gen_ai.usage.input_tokens": 9,
}  # fmt: skip
TOOLS = [{"type": "function", "name": "ls", "description": "list", "parameters": {"type": "object"}}]
INPUT = [text("user", "Fix it"), {"role": "assistant", "parts": [CALL]}, RESULT]
OUTPUT = [{**text("assistant", "Done."), "finish_reason": "stop"}]
OUTPUT[0]["parts"] = [{"type": "reasoning", "content": "hm"}, *OUTPUT[0]["parts"]]  # type: ignore[misc]
STRUCTURED = span(
    {
        **FACTS, "gen_ai.input.messages": INPUT, "gen_ai.output.messages": OUTPUT, "gen_ai.tool.definitions": TOOLS,
        "gen_ai.system_instructions": [{"type": "text", "content": "Be terse."}],
    },
    events=[
        {
            "name": "gen_ai.evaluation.result",
            "attributes": attributes({"gen_ai.evaluation.name": "helpful", "gen_ai.evaluation.score.label": "yes"}),
        },
        {"name": "exception", "attributes": []},
    ],
)  # fmt: skip
AS_TEXT = span(
    {**FACTS, "gen_ai.input.messages": json.dumps(INPUT[:1]), "gen_ai.output.messages": json.dumps([INPUT[1]])}
)
BATCHES = (
    batch(STRUCTURED, AS_TEXT),
    batch(span({"http.method": "GET"}), span({**FACTS, "gen_ai.operation.name": "invoke_agent"})),
    batch(
        span({**FACTS, "gen_ai.output.messages": [{**text("assistant", "half a"), "finish_reason": "length"}]}),
        span(FACTS),
    ),
)
MICROSOFT = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": {"files": ["a.py"]}}]}
DRIFT = (
    batch(span({**FACTS, "gen_ai.operation.name": "dream"})),
    batch(
        span(
            {
                **FACTS,
                "gen_ai.response.model": "other",
                "gen_ai.input.messages": [INPUT[0], INPUT[1], MICROSOFT, {"role": "oracle", "parts": []}],
                "gen_ai.output.messages": [text("assistant", "So.", mood="good")],
            },
            flags=256,
            more={"a": 1},
        )
    ),
    b'{"resourceLogs": [{}]}\n',
    b'{"resourceDreams": []}\n',
)
BROKEN = (
    batch(span({**FACTS, "gen_ai.output.messages": '[{"role": "assistant", "par'})),
    b'{"resourceSpans": 7}\n',
    b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"attributes": "none"}]}]}]}\n',
    b"not JSON\n",
    b"\n",
    b'{"resourceSpans": ' + b"[" * 3000 + b"\n",
    b'{"resource',
)
LINES = (*BATCHES, *DRIFT, *BROKEN)
