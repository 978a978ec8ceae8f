"""Rows of data sets: common shapes, converted to the three of `wire/records`. Each row is independent, so files may mix
shapes. To add a shape, write a function that converts a row to a record's JSON, and a line in `SHAPES`.

- ShareGPT: `conversations` of `{"from": ..., "value": ...}`, with the roles that training tools added.
- Alpaca: `instruction`, `input`, `output`, and LLaMA-Factory's `system` and `history`.
- Trajectories that Hermes Agent saves (`trajectory_samples.jsonl.gz`, batches), and data sets of that form: ShareGPT in
  which thoughts, calls and results are written as XML inside the text. A chat template would render that again, so it
  is made into structure here. After `developer-guide/trajectory-format.md` of NousResearch/hermes-agent.
- Rows that compare two answers or rate one: TRL's preference and KTO rows, OpenAI's DPO rows. The answer keeps the
  opinion on it (`opinion_in`), and `curation/preferences.py` decides whether more than good answers is learned.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from apollod.curation.conversation import Dropped, Opinion
from apollod.errors import RecordRefused

ROLES = {
    "system": "system", "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant",
    "model": "assistant", "chatgpt": "assistant", "bot": "assistant", "function_call": "assistant",
    "observation": "tool", "tool": "tool", "function_response": "tool", "function": "tool", "ipython": "tool",
    "developer": "developer",
}  # fmt: skip

TOOLS = re.compile(r"<tools>\s*(.*?)\s*</tools>", re.DOTALL)
THOUGHT = re.compile(r"\s*<think>\s*(.*?)\s*</think>\s*", re.DOTALL)
CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
RESPONSE = re.compile(r"<tool_response>\s*(.*?)\s*</tool_response>", re.DOTALL)

GOOD, WORSE = "apollod.good", "apollod.worse"
"""Fields of a converted row: whether its answer was rated good, and an answer to the same prompt that was worse"""
RATINGS = ("kto_tag", "label")
LABELS: dict[object, bool] = {
    True: True, False: False, "true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False,
    "desirable": True, "undesirable": False,
}  # fmt: skip
"""The keys match 1 and 0, too, which equal True and False"""
ANSWERED = frozenset({"completion", "messages", "conversations", "output", "response"})
"""Fields of a rated answer; without one of them, a `label` may mean anything"""

Row = dict[str, Any]
"""The JSON object of a line, without null values."""


def sharegpt(row: dict[str, Any]) -> dict[str, Any]:
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


def alpaca(row: dict[str, Any]) -> dict[str, Any]:
    """A conversation that ends with the learned output. Earlier turns (`history`) are context."""
    return {"messages": [*alpaca_prompt(row), {"role": "assistant", "content": row["output"]}]}


def alpaca_prompt(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages before the output. Raises RecordRefused."""
    messages = [{"role": "system", "content": row["system"]}] if row.get("system") else []
    history = row.get("history") or []
    if not isinstance(history, list) or not all(isinstance(said, list) and len(said) == 2 for said in history):
        raise RecordRefused("history is no list of [question, answer]", "give pairs of strings, or leave it out")
    for said in history:
        messages += [{"role": "user", "content": said[0]}, {"role": "assistant", "content": said[1], "weight": 0}]
    parts = [part for part in (row.get("instruction", ""), row.get("input", "")) if part]
    if not all(isinstance(part, str) for part in parts):
        raise RecordRefused("instruction or input is no string", "write texts")
    return [*messages, {"role": "user", "content": "\n".join(parts)}]


def is_trajectory(row: dict[str, Any]) -> bool:
    """True if the row has ShareGPT turns and the result of the run, or a system prompt that lists tools in XML."""
    turns = row.get("conversations")
    if not isinstance(turns, list) or not turns:
        return False
    return "completed" in row or (isinstance(turns[0], dict) and _has_tools(turns[0].get("value")))


def trajectory(row: dict[str, Any]) -> dict[str, Any] | Dropped:
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


def pair(row: dict[str, Any]) -> dict[str, Any]:
    """The chosen answer to the prompt. Without a prompt field, the prompt is the common beginning of both answers.
    Raises RecordRefused."""
    chosen, rejected = (_messages(row[name], name) for name in ("chosen", "rejected"))
    prompt = _prompt(row)
    worse = rejected if isinstance(rejected, str) else ""
    if isinstance(chosen, str) and isinstance(prompt, str):
        return {"prompt": prompt, "completion": chosen, **_worse(worse)}
    if isinstance(chosen, str) and prompt is None:
        common = _common_text(chosen, worse)
        return {"prompt": chosen[:common], "completion": chosen[common:], **_worse(worse[common:])}
    answers = chosen if isinstance(chosen, list) else [{"role": "assistant", "content": chosen}]
    others = rejected if isinstance(rejected, list) else [{"role": "assistant", "content": rejected}]
    common = next((n for n, turn in enumerate(answers) if n >= len(others) or turn != others[n]), len(answers) - 1)
    context, answers, others = answers[:common], answers[common:], others[common:]
    if not context:  # else it repeats the prompt
        context = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt or []
    return {"prompt": context, "completion": answers, "tools": tools_of(row.get("tools")), **_worse(others)}


def _worse(answer: str | list[dict[str, Any]]) -> dict[str, Any]:
    """The field of a worse answer, if it is one answer."""
    if isinstance(answer, list):
        return {WORSE: answer[0]} if len(answer) == 1 else {}
    return {WORSE: answer} if answer.strip() else {}


def opinion_in(row: dict[str, Any]) -> Opinion | None:
    """The opinion of a converted row on its answer; None: it has none."""
    if GOOD not in row and WORSE not in row:
        return None
    return Opinion(row.get(GOOD, True), GOOD in row, (row[WORSE],) if WORSE in row else ())


def openai(row: dict[str, Any]) -> dict[str, Any]:
    """The preferred output to the input's messages. Raises RecordRefused."""
    asked = row["input"]
    if not isinstance(asked, dict):
        raise RecordRefused("input is no object", 'give {"messages": [...], "tools": [...]}')
    context, answers = _messages(asked.get("messages"), "input"), _messages(row["preferred_output"], "preferred_output")
    if not isinstance(context, list) or not isinstance(answers, list):
        raise RecordRefused("input or preferred_output has no list of messages", "give [{role, content}, ...]")
    others = row.get("non_preferred_output")
    worse = _messages(others, "non_preferred_output") if others is not None else []
    return {"prompt": context, "completion": answers, "tools": tools_of(asked.get("tools")), **_worse(worse)}


def rated(row: dict[str, Any]) -> dict[str, Any]:
    """The row with its rating as `GOOD`."""
    return {**{name: value for name, value in row.items() if name not in RATINGS}, GOOD: bool(_rating(row))}


def _rating(row: dict[str, Any]) -> bool | None:
    """The rating of a row; None for none, and for a label that is neither true nor false."""
    for name in RATINGS:
        if name in row and (name != "label" or not ANSWERED.isdisjoint(row)):
            value = row[name]
            value = value.strip().lower() if isinstance(value, str) else value
            if isinstance(value, bool | int | float | str) and value in LABELS:
                return LABELS[value]
    return None


def _prompt(row: dict[str, Any]) -> str | list[dict[str, Any]] | None:
    """The prompt of both answers: TRL's `prompt`, or a field of another name; None: it is within the answers."""
    if "instruction" in row:
        return alpaca_prompt(row)
    if "conversations" in row:
        prompt: str | list[dict[str, Any]] = messages_of(row["conversations"], "conversations")
    elif name := next((name for name in ("prompt", "messages", "question") if name in row), ""):
        prompt = _messages(row[name], name)
    else:
        return None
    system = row.get("system")
    if isinstance(system, str) and system:
        told = {"role": "system", "content": system}
        return [told, *(prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}])]
    return prompt


def _messages(value: Any, name: str) -> str | list[dict[str, Any]]:
    """A text, or messages; one message may stand alone. Raises RecordRefused."""
    if isinstance(value, str):
        return value
    return messages_of([value] if isinstance(value, dict) else value, name)


def _common_text(chosen: str, rejected: str) -> int:
    """Length of the common beginning of both answers, cut before its trailing space, as in TRL's `extract_prompt`."""
    pairs = enumerate(zip(chosen, rejected, strict=False))
    common = next((n for n, (one, other) in pairs if one != other), min(len(chosen), len(rejected)))
    return common - 1 if common and chosen[common - 1] == " " else common


class Shape(NamedTuple):
    """A shape of rows: how to recognise and convert it."""

    name: str
    """format name of a file that begins with such a row"""
    is_it: Callable[[Row], bool]
    convert: Callable[[Row], Row | Dropped]
    """returns the input of `wire.records.record_of`, or the reason for dropping the row. Raises RecordRefused."""


def _has(row: Row, *names: str) -> bool:
    return row.keys() >= set(names)


SHAPES: tuple[Shape, ...] = (
    Shape("openai-dpo", lambda row: _has(row, "preferred_output", "input"), openai),
    Shape("preference", lambda row: _has(row, "chosen", "rejected"), pair),
    Shape("kto", lambda row: _rating(row) is not None, rated),
    Shape("hermes-trajectories", is_trajectory, trajectory),
    Shape("sharegpt", lambda row: _has(row, "conversations") and "messages" not in row, sharegpt),
    Shape("alpaca", lambda row: _has(row, "instruction", "output") and "messages" not in row, alpaca),
)
"""In order of precedence. A row that matches none of them is a record as it stands, or of unknown form."""


MEDIA = ("images", "image", "videos", "video", "audios", "audio")
"""Columns with media, which a text model cannot see"""
OF_MEDIA = Dropped("about pictures, videos or sounds, which the model is not shown")


KEPT = ("tier", GOOD, WORSE)
"""Fields that stay where a row is converted again: a rating may stand around another shape"""


def convert(value: Mapping[str, Any]) -> Row | Dropped:
    """A row of any shape as the input of `wire.records.record_of`; further fields, such as a tier, stay. Raises
    RecordRefused."""
    row = {key: field for key, field in value.items() if field is not None}
    if any(row.get(name) for name in MEDIA):
        return OF_MEDIA
    seen = 0
    while (shape := _shape(row)) is not None and seen < 3:
        converted = shape.convert(row)
        if isinstance(converted, Dropped):
            return converted
        row = {**{name: row[name] for name in KEPT if name in row}, **converted}
        seen += 1
    return row


def name_of(value: Mapping[str, Any]) -> str:
    """The name of a row's shape; "" for a record as it stands, or an unknown form."""
    shape = _shape({key: field for key, field in value.items() if field is not None})
    return shape.name if shape is not None else ""


def _shape(row: Row) -> Shape | None:
    return next((shape for shape in SHAPES if shape.is_it(row)), None)
