"""Helpers for messages in agents' logs: content blocks, tool calls, JSON of one record."""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from apollod.errors import RecordRefused
from apollod.wire.records import Form, message_form
from apollod.wire.strict_json import checked_text

T = TypeVar("T")

TEXT_FIELDS = ("text", "thinking", "reasoning")


def json_object(line: bytes, decode: Callable[[bytes], T]) -> T:
    """Decode a line as a record of a log. Raises RecordRefused if it is not a JSON object of that shape."""
    try:
        return decode(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        checked_text(line)  # msgspec's own words for a wrong encoding differ from release to release
        raise RecordRefused(
            f"the line is no record of this log: {error}", "nothing to do if the program was writing; else look at it"
        ) from error


def text_of_blocks(blocks: Any, kind: str) -> str:
    """The texts of all blocks of a type, one after the other; a string is one text block."""
    if isinstance(blocks, str):
        return blocks if kind == "text" else ""
    if not isinstance(blocks, list):
        return ""
    return "".join([_text_of(block) for block in blocks if isinstance(block, dict) and block.get("type") == kind])


def _text_of(block: dict[str, Any]) -> str:
    for field in TEXT_FIELDS:
        if isinstance(text := block.get(field), str):
            return text
    return ""


def texts_of_parts(parts: Any, thought: bool = False) -> str:
    """The texts of Gemini's parts, or the thoughts among them; a string is one part."""
    if isinstance(parts, str):
        return "" if thought else parts
    parts = parts if isinstance(parts, list) else [parts]
    texts = (part for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))
    return "".join(part["text"] for part in texts if bool(part.get("thought")) == thought)


def in_parts(parts: Any, kind: str) -> list[dict[str, Any]]:
    """Gemini's `functionCall` or `functionResponse` objects."""
    parts = parts if isinstance(parts, list) else [parts]
    return [part[kind] for part in parts if isinstance(part, dict) and isinstance(part.get(kind), dict)]


def text_of_response(response: Any) -> str:
    """The result of a tool in Gemini's `response`: its `output` or `error` if that is its only member, else JSON."""
    if isinstance(response, dict) and len(response) == 1:
        response = response.get("output", response.get("error", response))
    return response if isinstance(response, str) else json_text(response)


def json_text(value: Any) -> str:
    """A JSON value as text for a model."""
    return msgspec.json.encode(value).decode()


def tool_call(call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    """A call in the form of an OpenAI message; `arguments` is an object or JSON text."""
    return {"id": call_id, "function": {"name": name, "arguments": arguments}}


def form(role: str, content: str, **fields: Any) -> Form:
    """The canonical form of a log's message; empty fields are left out. Raises RecordRefused."""
    given = {name: value for name, value in fields.items() if value}
    return message_form({"role": role, "content": content, **given}, f"a message of {role}", part=True)


def context_form(form: Form) -> Form:
    """The same answer as context, which is not learned."""
    return {**form, "weight": 0}
