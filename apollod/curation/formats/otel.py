"""Spans of OpenTelemetry with the GenAI conventions, as its file exporter writes them: OTLP JSON, a batch a line.

After open-telemetry/semantic-conventions-genai, which is still in development: messages stand in attributes, as JSON
text or structured, if the capture of content is switched on. Each call of a model is a span with the model's whole
input, so a span is a conversation whose last answer may be learned.
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from apollod.curation.conversation import Dropped, Entry, Said, Session, Signal, Unknown, Whole
from apollod.curation.formats import turns
from apollod.curation.formats.session_reader import SessionReader, json_object, string
from apollod.errors import RecordRefused
from apollod.wire.records import Form

NAME = "otel-genai"
CALLS = frozenset({"chat", "generate_content", "text_completion"})
OTHERS = frozenset(
    {"invoke_agent", "create_agent", "execute_tool", "embeddings", "retrieval", "invoke_workflow", "rerank", "plan"}
)
"""Operations other than model calls, or whose calls have spans of their own."""
FAILED = ("STATUS_CODE_ERROR", "ERROR", "2", 2)
"""Codes of a span's status"""
CUT_OFF = frozenset({"length", "max_tokens", "error", "content_filter"})


class _Attribute(msgspec.Struct):
    key: str = ""
    value: Any = None


class _Event(msgspec.Struct):
    name: str = ""
    attributes: list[_Attribute] = []


class _Status(msgspec.Struct):
    code: int | str | None = None


class _Span(msgspec.Struct, rename="camel"):
    trace_id: str = ""
    span_id: str = ""
    status: _Status | None = None
    attributes: list[_Attribute] = []
    events: list[_Event] = []


class _Scope(msgspec.Struct):
    spans: list[_Span] = []


class _Resource(msgspec.Struct, rename="camel"):
    scope_spans: list[_Scope] = []


class _Batch(msgspec.Struct, rename="camel"):
    resource_spans: list[_Resource] | None = None
    resource_logs: Any = None
    resource_metrics: Any = None


_decode = msgspec.json.Decoder(_Batch).decode


def recognise(path: str, head: bytes) -> bool:
    """True if the first line is a batch of spans."""
    return re.match(rb'\s*\{\s*"resourceSpans"', head) is not None


def hear(line: bytes) -> Iterable[Entry]:
    """The entries of a batch."""
    batch = json_object(line, _decode)
    if batch.resource_spans is None:
        return (Dropped("logs or metrics"),) if batch.resource_logs or batch.resource_metrics else (Unknown("batch"),)
    spans = (span for resource in batch.resource_spans for scope in resource.scope_spans for span in scope.spans)
    try:
        return tuple(_of_span(span) for span in spans)
    except RecursionError as error:
        raise RecordRefused("an attribute is nested too deep", "leave it out of the spans") from error


def _of_span(span: _Span) -> Entry:
    facts = {one.key: _value(one.value) for one in span.attributes if one.key.startswith("gen_ai.")}
    if not facts:
        return Dropped("a span of something else")
    operation = string(facts.get("gen_ai.operation.name"))
    if operation in OTHERS:
        return Dropped(f"a span of {operation}")
    if operation not in CALLS:
        return Unknown(f"operation: {operation}")
    if span.status is not None and span.status.code in FAILED:
        return Dropped("a span that ended with an error")
    said = [one for one in _messages(facts.get("gen_ai.output.messages")) if one["role"] == "assistant"]
    if not said:
        return Dropped("a span without its messages; switch on that content is captured")
    model = string(facts.get("gen_ai.response.model")) or string(facts.get("gen_ai.request.model"))
    response = string(facts.get("gen_ai.response.id"))
    context = [Said(one, prompt=one["role"] == "user") for one in _messages(facts.get("gen_ai.input.messages"))]
    signals = tuple(signal for event in span.events for signal in _signals(event))
    answer = Said(said[0], id=span.span_id, model=model, response=response, signals=signals)
    if answer.message.get("weight") == 0:
        return Dropped("an answer that was cut off")
    session = Session(
        id=string(facts.get("gen_ai.conversation.id")) or span.trace_id,
        agent=string(facts.get("gen_ai.agent.name")) or NAME,
        model=model,
        system=_texts(_decoded(facts.get("gen_ai.system_instructions")), "text"),
        tools=_tools(_decoded(facts.get("gen_ai.tool.definitions"))),
    )
    return Whole(session, (*context, answer), len(context))


def _value(value: Any) -> Any:
    """A value of OTLP JSON as plain JSON."""
    if not isinstance(value, dict) or len(value) != 1:
        return None
    ((kind, inner),) = value.items()
    if kind == "arrayValue":
        values = inner.get("values") if isinstance(inner, dict) else None
        return [_value(one) for one in values] if isinstance(values, list) else []
    if kind == "kvlistValue":
        values = inner.get("values") if isinstance(inner, dict) else None
        pairs = [one for one in values if isinstance(one, dict)] if isinstance(values, list) else []
        return {str(one.get("key")): _value(one.get("value")) for one in pairs}
    return inner


def _decoded(value: Any) -> Any:
    """A value from JSON text, or unchanged if it is structured. Raises RecordRefused."""
    if not isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise RecordRefused(f"an attribute of a span is no JSON: {error}", "it may have been cut by a limit") from error


def _messages(value: Any) -> list[Form]:
    """The messages of an attribute; results of tools are messages of their own."""
    value = _decoded(value)
    given = [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
    return [form_ for one in given for form_ in _forms(one)]


def _forms(message: dict[str, Any]) -> Iterable[Form]:
    parts = message["parts"] if isinstance(message.get("parts"), list) else _parts_of_content(message)
    parts = [part for part in parts if isinstance(part, dict)]
    role, text = message.get("role"), _texts(parts, "text")
    for part in parts:
        if part.get("type") == "tool_call_response":
            shown = turns.json_text(part.get("result", part.get("response")))
            yield turns.form("tool", shown, tool_call_id=part.get("id"))
    if role == "assistant":
        calls = turns.calls_in(parts, "tool_call", "arguments")
        cut_off = str(message.get("finish_reason")) in CUT_OFF
        yield turns.answer(text, _texts(parts, "reasoning"), calls, cut_off)
    elif role in ("system", "user", "developer") and text:
        yield turns.form(role, text)


def _parts_of_content(message: dict[str, Any]) -> list[Any]:
    """The parts of a message in OpenAI's form, with `content` and `tool_calls`, which some libraries record."""
    content, calls = message.get("content"), message.get("tool_calls")
    if message.get("role") == "tool":
        text = turns.text_of_blocks(content, "text")
        return [{"type": "tool_call_response", "id": message.get("tool_call_id"), "response": text}]
    parts: list[Any] = [{"type": "text", "content": turns.text_of_blocks(content, "text")}]
    reasoning = message.get("reasoning_content")
    parts += [{"type": "reasoning", "content": reasoning}] if isinstance(reasoning, str) else []
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict) and isinstance(function := call.get("function", call), dict):
            named = {"name": function.get("name"), "arguments": function.get("arguments")}
            parts.append({"type": "tool_call", "id": call.get("id"), **named})
    return parts


def _texts(parts: Any, kind: str) -> str:
    parts = parts if isinstance(parts, list) else []
    texts = (part.get("content") for part in parts if isinstance(part, dict) and part.get("type") == kind)
    return "".join(text for text in texts if isinstance(text, str))


def _tools(value: Any) -> tuple[dict[str, Any], ...]:
    """Definitions in the form of an OpenAI request."""
    given = [tool for tool in value if isinstance(tool, dict)] if isinstance(value, list) else []
    return tuple(
        tool
        if "function" in tool
        else {"type": "function", "function": {key: field for key, field in tool.items() if key != "type"}}
        for tool in given
    )


def _signals(event: _Event) -> Iterable[Signal]:
    if event.name == "gen_ai.evaluation.result":
        facts = {one.key.removeprefix("gen_ai.evaluation."): _value(one.value) for one in event.attributes}
        shown = (facts.get(key) for key in ("name", "score.value", "score.label"))
        yield Signal("evaluation", " ".join(str(one) for one in shown if one is not None)[:200])


READER = SessionReader(NAME, recognise, hear)
