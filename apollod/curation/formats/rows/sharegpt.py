"""Rows of ShareGPT: `conversations` of `{"from": ..., "value": ...}`, with the roles that training tools added."""

import json
from typing import Any

from apollod.errors import RecordRefused

ROLES = {
    "system": "system", "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant",
    "model": "assistant", "chatgpt": "assistant", "bot": "assistant", "function_call": "assistant",
    "observation": "tool", "tool": "tool", "function_response": "tool", "function": "tool", "ipython": "tool",
    "developer": "developer",
}  # fmt: skip


def is_it(row: dict[str, Any]) -> bool:
    """True if the row has `conversations`."""
    return "conversations" in row and "messages" not in row


def convert(row: dict[str, Any]) -> dict[str, Any]:
    """A conversation in which the model's answers and calls are learned. Raises RecordRefused."""
    messages = messages_of(row["conversations"], "conversations")
    if row.get("system") and not (messages and messages[0].get("role") == "system"):
        messages.insert(0, {"role": "system", "content": row["system"]})
    return {"messages": messages, "tools": tools_of(row.get("tools"))}


def messages_of(turns: Any, where: str) -> list[dict[str, Any]]:
    """Convert ShareGPT turns to OpenAI messages; turns in OpenAI's form stay as they are. Raises RecordRefused."""
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        raise RecordRefused(f"{where} is no list of objects", 'give [{"from": "human", "value": ...}, ...]')
    return [message_of(turn, f"turn {number} of {where}") for number, turn in enumerate(turns, 1)]


def message_of(turn: dict[str, Any], where: str) -> dict[str, Any]:
    """Convert a ShareGPT turn to an OpenAI message. Raises RecordRefused."""
    if "from" not in turn and "role" in turn:
        return turn
    role, value = turn.get("from"), turn.get("value")
    if not isinstance(role, str) or role not in ROLES:
        raise RecordRefused(f"{where} is from {str(role)[:40]!r}", f"use one of {', '.join(ROLES)}")
    weight = {"weight": turn["weight"]} if turn.get("weight") is not None else {}
    if role == "function_call":
        return {"role": "assistant", "content": "", "tool_calls": _calls(value, where), **weight}
    return {"role": ROLES[role], "content": value, **weight}


def tools_of(tools: Any) -> list[dict[str, Any]]:
    """Tools in the form of an OpenAI request, from JSON text or objects, also from bare functions. Raises
    RecordRefused."""
    if isinstance(tools, str):
        tools = json_of(tools, "tools") if tools.strip() else []
    if tools is None:
        return []
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise RecordRefused("tools is not a list of objects", "give the tools as in an OpenAI chat request")
    return [
        tool if "function" in tool or "name" not in tool else {"type": "function", "function": tool} for tool in tools
    ]


def json_of(text: str, what: str) -> Any:
    """Parse JSON within a string. Raises RecordRefused."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordRefused(f"{what} is not JSON: {error}", "write JSON") from error


def _calls(value: Any, where: str) -> list[dict[str, Any]]:
    calls = json_of(value, where) if isinstance(value, str) else value
    calls = calls if isinstance(calls, list) else [calls]
    if not all(isinstance(call, dict) for call in calls):
        raise RecordRefused(f"{where} is no call of a function", 'write {"name": ..., "arguments": {...}}')
    return [call if "function" in call else {"function": call} for call in calls]
