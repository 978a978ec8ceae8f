"""What messages are made of in the logs of agents: content blocks, tool calls, JSON of one line."""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from apollod.errors import RecordRefused
from apollod.wire.records import Form, message_form

T = TypeVar("T")

TEXT_FIELDS = ("text", "thinking", "reasoning")


def json_object(line: bytes, decode: Callable[[bytes], T]) -> T:
    """A line as the record of a log. Raises RecordRefused where it is no JSON object of that shape."""
    try:
        return decode(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise RecordRefused(
            f"the line is no record of this log: {error}", "nothing to do if the program was writing; else look at it"
        ) from error


def text_of_blocks(blocks: Any, kind: str) -> str:
    """The texts of all blocks of a type, one after the other; a string is one text block."""
    if isinstance(blocks, str):
        return blocks if kind == "text" else ""
    if not isinstance(blocks, list):
        return ""
    return "".join(
        next((block[field] for field in TEXT_FIELDS if isinstance(block.get(field), str)), "")
        for block in blocks
        if isinstance(block, dict) and block.get("type") == kind
    )


def tool_call(call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    """A call as an OpenAI message has it; `arguments` is an object or JSON text."""
    return {"id": call_id, "function": {"name": name, "arguments": arguments}}


def form(role: str, content: str, **fields: Any) -> Form:
    """The canonical form of a message of a log; fields that are empty are left out. Raises RecordRefused."""
    given = {name: value for name, value in fields.items() if value}
    return message_form({"role": role, "content": content, **given}, f"a message of {role}", part=True)
