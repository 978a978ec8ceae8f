"""Turns of a conversation as agents write them: their texts, blocks and calls, and the canonical forms that become
entries. Used as `turns.answer(...)` by the formats.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from apollod.curation.conversation import Dropped, Said, Signal
from apollod.wire.records import Form, message_form

TEXT_FIELDS = ("text", "thinking", "reasoning")


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


def blocks_of(content: Any) -> list[dict[str, Any]]:
    """The blocks of a message; a string is one text block."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def calls_in(blocks: Iterable[dict[str, Any]], kind: str = "tool_use", arguments: str = "input") -> list[Form]:
    """The calls of tools among blocks of Anthropic's shape; `arguments`: the field that holds them."""
    return [tool_call(b.get("id"), b.get("name"), b.get(arguments)) for b in blocks if b.get("type") == kind]


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
    return json_text(response)


def json_text(value: Any) -> str:
    """A JSON value as text for a model; text stays as it is."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def tool_call(call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    """A call in the form of an OpenAI message; `arguments` is an object or JSON text."""
    return {"id": call_id, "function": {"name": name, "arguments": arguments}}


def form(role: str, content: str, **fields: Any) -> Form:
    """The canonical form of a log's message; empty fields are left out. Raises RecordRefused."""
    given = {name: value for name, value in fields.items() if value}
    return message_form({"role": role, "content": content, **given}, f"a message of {role}", part=True)


def answer(text: str, thought: str | None = "", calls: Sequence[Form] = (), context: bool = False) -> Form:
    """The canonical form of an answer; as `context`, it is not learned. Raises RecordRefused."""
    said = form("assistant", text, reasoning_content=thought, tool_calls=calls)
    return {**said, "weight": 0} if context else said


def answer_of_blocks(blocks: Any, context: bool = False, calls: str = "tool_use", arguments: str = "input") -> Form:
    """The canonical form of an answer in blocks of Anthropic's shape; `calls`, `arguments`: the type of its blocks that
    are calls, and their field. Raises RecordRefused."""
    blocks = blocks_of(blocks)
    made = calls_in(blocks, calls, arguments)
    return answer(text_of_blocks(blocks, "text"), text_of_blocks(blocks, "thinking"), made, context)


def user(text: str, id: str = "", prompt: bool = True, after: str | None = None) -> Said | Dropped:
    """A message of the user, which begins a turn if it is a `prompt`. Raises RecordRefused."""
    if not text.strip():
        return Dropped("a prompt without text")
    return Said(form("user", text), id=id, after=after, prompt=prompt)


def trouble(text: str, failed: bool, refused: bool = False) -> tuple[Signal, ...]:
    """The evidence in a tool's result that the call `failed`, or that the user `refused` it."""
    return (Signal("refused" if refused else "tool-error", text[:200]),) if failed or refused else ()


def tool_result(
    text: str, call: Any, id: str = "", failed: bool = False, refused: bool = False, after: str | None = None
) -> Said:
    """A tool's result. `call`: id of its call. Raises RecordRefused."""
    return Said(form("tool", text, tool_call_id=call), id=id, after=after, signals=trouble(text, failed, refused))
