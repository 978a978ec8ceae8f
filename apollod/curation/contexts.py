"""The last answer of an example in two requests to an engine: with the stripped text before it, and without."""

from typing import Any, NamedTuple

import msgspec

from apollod.core.facts.intake.events import Removed
from apollod.curation.stripping import TOOLS, restored
from apollod.wire.records import Form


class Asked(NamedTuple):
    """A conversation as an OpenAI request has it. Its last message is the answer."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]


class Contexts(NamedTuple):
    """The same answer: as the model gave it, and as it is learned."""

    with_context: Asked
    without_context: Asked


def contexts(record: bytes, removed: tuple[Removed, ...]) -> Contexts | None:
    """Both conversations of a canonical record from which `removed` was stripped, up to its last learned answer; None
    if it has no such answer."""
    form = msgspec.json.decode(record)
    messages: list[Form] = form.get("messages", [])
    learned = [n for n, one in enumerate(messages) if one["role"] == "assistant" and one.get("weight") != 0]
    if not learned:
        return None
    last = learned[-1]
    shown, tools = messages[: last + 1], form.get("tools", [])
    known = tuple(one for one in removed if one.place <= last)
    stripped_tools = [tool for one in removed if one.why == TOOLS for tool in msgspec.json.decode(one.text)]
    return Contexts(
        Asked([as_asked(one) for one in restored(shown, known)], stripped_tools or tools),
        Asked([as_asked(one) for one in shown], tools),
    )


def as_asked(message: Form) -> dict[str, Any]:
    """A turn of a record in the form of an OpenAI request: without our own marks, with arguments of calls as text, and
    with its thought under both names, of which `/tokenize` of vLLM 0.32 takes only `reasoning`."""
    asked = {key: value for key, value in message.items() if key not in ("weight", "reasoning_weight", "strip")}
    if "reasoning_content" in message:
        asked["reasoning"] = message["reasoning_content"]
    if "tool_calls" in message:
        asked["tool_calls"] = [_call(call, n) for n, call in enumerate(message["tool_calls"])]
    return asked


def _call(call: dict[str, Any], number: int) -> dict[str, Any]:
    function = call["function"]
    arguments = msgspec.json.encode(function["arguments"]).decode()
    return {"id": f"call_{number}", **call, "function": {"arguments": arguments, "name": function["name"]}}
