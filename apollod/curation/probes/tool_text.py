"""Parses tool calls in a model's raw text: the template shows it the tools, and the engine returns its answer as text,
which works even if it was started without a parser of calls.

Understands the formats of Qwen and Hermes (`<tool_call>` around JSON), Qwen3-Coder and Qwen3.5 (`<function=NAME>` with
`<parameter=NAME>`), and Llama and Mistral (a JSON object or list, behind marks that the engine leaves out).
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_block = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|$)", re.DOTALL).findall
_function = re.compile(r"<function=([^>\n]+)>\s*(.*?)\s*(?:</function>|$)", re.DOTALL).findall
_parameter = re.compile(r"<parameter=([^>\n]+)>\n?(.*?)\n?(?:</parameter>|$)", re.DOTALL).findall
_fence = re.compile(r"\s*```[\w-]*\n(.*?)\n?\s*```\s*", re.DOTALL).fullmatch
_AS_JSON = {"True": "true", "False": "false", "None": "null"}
_marks = re.compile(r"\s*(?:\[TOOL_CALLS\]|<\|python_tag\|>)")


class Called(NamedTuple):
    """A call. `arguments`: None if they are not a JSON object."""

    name: str
    arguments: dict[str, Any] | None


def without_fence(text: str) -> str:
    """The text inside of a code fence around the whole answer, or the answer."""
    found = _fence(text)
    return found[1] if found else text.strip()


def calls_of(text: str, tools: Sequence[Mapping[str, Any]]) -> list[Called]:
    """All calls in an answer. Values of the XML form are text; the schemas in `tools` tell which ones to parse."""
    found: list[Called] = []
    for block in _block(text) or [text]:
        functions = _function(block)
        found += [Called(name.strip(), _parameters(name.strip(), body, tools)) for name, body in functions]
        if not functions:
            found += _of_json(block, tagged="<tool_call>" in text)
    return found


def _of_json(block: str, tagged: bool) -> list[Called]:
    """The calls in a block: everything inside tags; outside of them, objects with name and arguments."""
    try:
        value = json.loads(without_fence(_marks.sub("", block, count=1)))
    except (ValueError, RecursionError):
        return [Called("", None)] if tagged else []
    found = []
    for one in value if isinstance(value, list) else [value]:
        call = one.get("function", one) if isinstance(one, dict) else None
        if not isinstance(call, dict):
            call = one if isinstance(one, dict) and isinstance(one.get("name"), str) else {}
        given = call.get("arguments", call.get("parameters"))
        name = call.get("name")
        if isinstance(name, str) and (given is not None or tagged):
            found.append(Called(name, given if isinstance(given, dict) else None))
        elif tagged:
            found.append(Called("", None))
    return found


def _parameters(name: str, body: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    properties = next((_properties(tool) for tool in tools if tool["function"]["name"] == name), {})
    return {key.strip(): _value(text, properties.get(key.strip())) for key, text in _parameter(body)}


def _properties(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    found = tool["function"].get("parameters", {}).get("properties", {})
    return found if isinstance(found, dict) else {}


def _value(text: str, schema: Any) -> Any:
    kind = schema.get("type", "string") if isinstance(schema, dict) else "string"
    if kind == "string":
        return text
    text = _AS_JSON.get(text, text)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
