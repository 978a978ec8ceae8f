"""Trajectories that Hermes Agent saves (`trajectory_samples.jsonl.gz`, batches), and data sets of that form.

ShareGPT in which thoughts, calls and results are written as XML inside the text. A chat template would render that
again, so it is made into structure here. After `developer-guide/trajectory-format.md` of NousResearch/hermes-agent.
"""

import json
import re
from typing import Any

from apollod.curation.conversation import Dropped
from apollod.curation.formats.rows.sharegpt import json_of, messages_of, tools_of
from apollod.errors import RecordRefused

TOOLS = re.compile(r"<tools>\s*(.*?)\s*</tools>", re.DOTALL)
THOUGHT = re.compile(r"\s*<think>\s*(.*?)\s*</think>\s*", re.DOTALL)
CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
RESPONSE = re.compile(r"<tool_response>\s*(.*?)\s*</tool_response>", re.DOTALL)


def is_it(row: dict[str, Any]) -> bool:
    """True if the row has ShareGPT turns and the result of the run, or a system prompt that lists tools in XML."""
    turns = row.get("conversations")
    if not isinstance(turns, list) or not turns:
        return False
    return "completed" in row or (isinstance(turns[0], dict) and _has_tools(turns[0].get("value")))


def convert(row: dict[str, Any]) -> dict[str, Any] | Dropped:
    """The conversation of a completed run. A system prompt that only explains the XML is left out. Raises
    RecordRefused."""
    if row.get("completed") is False or row.get("partial") is True:
        return Dropped("a run that was not completed")
    messages: list[dict[str, Any]] = []
    tools: list[dict[str, Any]] = []
    for message in messages_of(row["conversations"], "conversations"):
        role, text = message.get("role"), message.get("content")
        if not isinstance(text, str):
            raise RecordRefused("a turn of conversations has no text", 'give {"from": ..., "value": "..."}')
        if role == "system" and _has_tools(text):
            tools = tools_of(json_of(_tools(text), "what stands in <tools>"))
        elif role == "assistant":
            messages.append(_answer(text, message))
        elif role == "tool":
            messages += _results(text, messages)
        else:
            messages.append(message)
    return {"messages": messages, "tools": tools}


def _has_tools(text: Any) -> bool:
    return isinstance(text, str) and _tools(text) != ""


def _tools(text: str) -> str:
    """The list of tools in a system prompt, as JSON. The prompt names the tags before it uses them."""
    return next((found[1] for found in TOOLS.finditer(text, max(0, text.rfind("<tools>"))) if found[1][:1] == "["), "")


def _answer(text: str, message: dict[str, Any]) -> dict[str, Any]:
    thought = THOUGHT.match(text)
    rest = text[thought.end() :] if thought else text
    calls = [json_of(call, "what stands in <tool_call>") for call in CALL.findall(rest)]
    answer = {**message, "content": CALL.sub("", rest).strip() if calls else rest}
    if thought and thought[1]:
        answer["reasoning_content"] = thought[1]
    if calls:
        answer["tool_calls"] = [{"function": call} for call in calls]
    return answer


def _results(text: str, before: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The results in one turn, a message each. Sets the ids of the calls before from them, in order."""
    calls = (before[-1].get("tool_calls") or []) if before else []
    results: list[dict[str, Any]] = []
    for place, found in enumerate(RESPONSE.findall(text) or [text]):
        value = json_of(found, "what stands in <tool_response>") if found.startswith("{") else found
        content = value["content"] if isinstance(value, dict) and "content" in value else value
        result = {"role": "tool", "content": _text(content)}
        if isinstance(value, dict) and isinstance(value.get("tool_call_id"), str):
            result["tool_call_id"] = value["tool_call_id"]
            if place < len(calls):
                calls[place].setdefault("id", value["tool_call_id"])
        results.append(result)
    return results


def _text(content: Any) -> str:
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
