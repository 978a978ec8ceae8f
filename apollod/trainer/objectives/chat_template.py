"""A model's chat template: tests its capabilities, then adapts conversations to them.

A template is a program by the model's author. It may reject roles or their order, and silently drop content that it
does not support: calls, the text before a call, results. Small conversations of marked words detect this, once per
template; each conversation is then rewritten to the form closest to the served one that the template renders in full.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
from transformers import PreTrainedTokenizerBase

from apollod.errors import RecordRefused
from apollod.wire.records import Message
from apollod.wire.thoughts import OPENED, split

Served = dict[str, Any]
"""A message in the form that vLLM passes to a template."""

DATE = date(2025, 1, 1)
"""Today's date for templates (`strftime_now`): the same record has to give the same tokens on every day."""

OPENING = "[earlier messages are not shown]"
"""user message in place of an unknown first one"""
GOES_ON = "Continue."
"""user message between two answers, for templates whose turns must alternate"""
_ID = 9  # letters and digits of a call's id in templates of Mistral; vLLM takes the last ones, too


@dataclass(frozen=True)
class Habits:
    """Capabilities of a chat template, each tested on its own: message orders it accepts, and content it renders."""

    developer: bool = False
    system: bool = False
    late_system: bool = False
    """a system message after other turns"""
    assistant_first: bool = False
    users: bool = False
    """two user turns in a row"""
    assistants: bool = False
    calls: bool = False
    several_calls: bool = False
    text_and_calls: bool = False
    any_id: bool = False
    results: bool = False
    user_after_results: bool = False


PLAIN = Habits()
"""accepted by every chat template: user and assistant alternate, text only"""


def as_served(message: Message) -> Served:
    """The message in the form that vLLM passes to the template: thinking under both of its names, without our own
    fields."""
    served: Served = msgspec.to_builtins(message)
    served.pop("weight", None)
    served.pop("part", None)
    served.pop("reasoning_weight", None)
    if message.reasoning_content is not None:
        served["reasoning"] = message.reasoning_content
    return served


def with_thoughts(message: Served) -> Served:
    """The message with a tagged thought at the head of its text moved into its own field: an endpoint without a
    reasoning parser leaves it in the text."""
    begins = message["role"] == "assistant" and message["content"].lstrip().startswith(OPENED)
    if not begins or message.get("reasoning_content"):
        return message
    said = split(message["content"])
    if said.unfinished:
        return message
    return {**message, "content": said.answer, "reasoning_content": said.thought, "reasoning": said.thought}


class ChatTemplate:
    """A tokenizer's chat template, with or without tools."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        if not tokenizer.chat_template:
            raise RecordRefused(
                "the model has no chat template",
                "add chat_template.jinja to the model directory, or use prompt/completion",
            )
        self._tokenizer = tokenizer

    def render(self, messages: Sequence[Served], tools: list[Any] | None = None, **options: Any) -> str:
        """The messages as text. Raises RecordRefused if the template raises."""
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    list(messages), tools=tools, strftime_now=DATE.strftime, tokenize=False, **options
                )
            )
        except Exception as error:  # it may raise anything
            reason = " ".join(str(error).split()) or type(error).__name__
            raise RecordRefused(
                f"the chat template refuses these messages ({reason})", "check roles and their order"
            ) from error

    def habits(self, tools: list[Any] | None = None) -> Habits:
        """Capabilities of the template."""
        known = _KNOWN.setdefault(self._tokenizer, {})
        template = str(self._tokenizer.get_chat_template(tools=tools))
        if template not in known:
            known[template] = _tried(self, tools)
        return known[template]


_KNOWN: WeakKeyDictionary[PreTrainedTokenizerBase, dict[str, Habits]] = WeakKeyDictionary()


# --- capabilities -------------------------------------------------------------------------------------------------


def _tried(template: ChatTemplate, tools: list[Any] | None) -> Habits:
    def shows(*messages: Served, marks: str = "") -> bool:
        asks = messages[-1]["role"] != "assistant"
        try:
            text = template.render(messages, tools, add_generation_prompt=asks)
        except RecordRefused:
            return False
        wanted = marks.split() or [str(one["content"]) for one in messages]
        return all(mark in text for mark in wanted)

    ask, again = _said("user", "uaaa"), _said("user", "ubbb")
    answer, more = _said("assistant", "aaaa"), _said("assistant", "abbb")
    calls = shows(ask, _calls("cccc"), _result("cccc"), marks="uaaa ncccc vcccc")
    result = _result("cccc") if calls else _said("tool", "rcccc")
    call = _calls("cccc") if calls else answer
    several = _said("assistant", "", tool_calls=[*_calls("cccc")["tool_calls"], *_calls("dddd")["tool_calls"]])
    return Habits(
        developer=shows(_said("developer", "daaa"), ask),
        system=shows(_said("system", "saaa"), ask),
        late_system=shows(ask, answer, _said("system", "sbbb"), again),
        assistant_first=shows(answer, ask),
        users=shows(ask, again),
        assistants=shows(ask, answer, more, again),
        calls=calls,
        several_calls=calls
        and shows(ask, several, _result("cccc"), _result("dddd"), marks="ncccc vcccc ndddd vdddd rcccc rdddd"),
        text_and_calls=calls and shows(ask, _calls("cccc", "tccc"), result, marks="tccc ncccc vcccc"),
        any_id=shows(ask, _calls("longer-than-nine"), _result("longer-than-nine")) if calls else True,
        results=shows(ask, call, result, marks="uaaa rcccc"),
        user_after_results=shows(ask, call, result, again, marks="uaaa rcccc ubbb"),
    )


def _said(role: str, text: str, **more: Any) -> Served:
    return {"content": text, "role": role, **more}


def _calls(name: str, text: str = "") -> Served:
    call = {"function": {"name": f"n{name}", "arguments": {"key": f"v{name}"}}, "id": _id(name), "type": "function"}
    return _said("assistant", text, tool_calls=[call])


def _result(name: str) -> Served:
    return _said("tool", f"r{name}", tool_call_id=_id(name))


def _id(name: str) -> str:
    return name if len(name) > _ID else name.rjust(_ID, "0")


# --- adapting a conversation --------------------------------------------------------------------------------------


def adapted(messages: Sequence[Served], habits: Habits) -> tuple[list[Served], Counter[str]]:
    """Rewrite the context before an answer so that a template with these habits accepts it; returns it with counts of
    the changes by name."""
    done = Counter[str]()
    told = [_whole_text(one) for one in messages]
    told = _with_instructions(told, habits, done)
    told = _with_calls(told, habits, done)
    told = _in_turns(told, habits, done)
    if told and told[-1]["role"] == "assistant" and not habits.assistants:
        told.append(_said("user", GOES_ON))
        done["asked_to_go_on"] += 1
    first = next((n for n, one in enumerate(told) if one["role"] != "system"), len(told))
    users = any(one["role"] == "user" for one in told)
    opens = first < len(told) and told[first]["role"] != "user"
    if not users or (opens and not habits.assistant_first):
        told.insert(first, _said("user", OPENING))
        done["opened"] += 1
    return told, done


def adapted_answer(answer: Served, habits: Habits) -> Served:
    """The answer adapted in the same way; calls that the template does not support go into its text."""
    answer = _whole_text(answer)
    if answer.get("tool_calls"):
        if not habits.calls:
            return _as_text(answer)
        if not habits.any_id:
            answer = {**answer, "tool_calls": [_short_id(call, n) for n, call in enumerate(answer["tool_calls"])]}
    return answer


def _whole_text(message: Served) -> Served:
    """The message with an explicit empty thought if its text holds `</think>`: some templates take the text up to it
    for a thought, unless there is one."""
    if message["role"] == "assistant" and "</think>" in message["content"] and "reasoning_content" not in message:
        return {**message, "reasoning_content": "", "reasoning": ""}
    return message


def _with_instructions(messages: list[Served], habits: Habits, done: Counter[str]) -> list[Served]:
    """Merge leading instructions into one system message, or put them before the user's first words; later ones become
    the user's."""
    told = [
        {**one, "role": "system"} if one["role"] == "developer" and not habits.developer else one for one in messages
    ]
    count = next((n for n, one in enumerate(told) if one["role"] != "system"), len(told))
    head, rest = told[:count], told[count:]
    if count > 1:
        done["joined"] += count - 1
        head = [{**head[0], "content": "\n\n".join(one["content"] for one in head)}]
    if not habits.late_system:
        done["folded"] += sum(one["role"] == "system" for one in rest)
        rest = [{**one, "role": "user"} if one["role"] == "system" else one for one in rest]
    if not head or habits.system:
        return head + rest
    done["folded"] += 1
    for n, one in enumerate(rest):
        if one["role"] == "user":
            rest[n] = {**one, "content": f"{head[0]['content']}\n\n{one['content']}"}
            return rest
    return [{**head[0], "role": "user"}, *rest]


def _with_calls(messages: list[Served], habits: Habits, done: Counter[str]) -> list[Served]:
    told: list[Served] = []
    for one in messages:
        if one.get("tool_calls") and not habits.calls:
            done["as_text"] += 1
            one = _as_text(one)
        elif one["role"] == "tool" and not habits.results:
            done["as_text"] += 1
            one = _said("user", f"<tool_response>\n{one['content']}\n</tool_response>")
        told.append(one)
    if habits.calls and not habits.several_calls:
        told = _one_call_each(told, done)
    return told if habits.any_id else _with_short_ids(told)


def _as_text(message: Served) -> Served:
    """The message with its calls as text in the format of Hermes and Qwen, which most models know."""
    text = [message["content"]] if message["content"].strip() else []
    for call in message["tool_calls"]:
        said = msgspec.json.encode({"name": call["function"]["name"], "arguments": call["function"]["arguments"]})
        text.append(f"<tool_call>\n{said.decode()}\n</tool_call>")
    return {key: value for key, value in message.items() if key != "tool_calls"} | {"content": "\n".join(text)}


def _one_call_each(messages: list[Served], done: Counter[str]) -> list[Served]:
    """Split an answer with several calls into answers with one call each, each followed by its result."""
    told: list[Served] = []
    n = 0
    while n < len(messages):
        message = messages[n]
        n += 1
        if len(message.get("tool_calls") or ()) < 2:
            told.append(message)
            continue
        done["split"] += 1
        end = next((m for m in range(n, len(messages)) if messages[m]["role"] != "tool"), len(messages))
        results, n = messages[n:end], end
        for k, call in enumerate(message["tool_calls"]):
            own = {**message, "tool_calls": [call]} if not k else _said("assistant", "", tool_calls=[call])
            named = [one for one in results if call.get("id") and one.get("tool_call_id") == call["id"]]
            took = named[:1] or results[:1]
            results = [one for one in results if not any(one is taken for taken in took)]
            told += [own, *(took or [_said("tool", "", tool_call_id=call.get("id") or "")])]
        told += results
    return told


def _with_short_ids(messages: list[Served]) -> list[Served]:
    told: list[Served] = []
    for one in messages:
        if one.get("tool_calls"):
            one = {**one, "tool_calls": [_short_id(call, n) for n, call in enumerate(one["tool_calls"])]}
        elif one["role"] == "tool":
            one = {**one, "tool_call_id": _short(one.get("tool_call_id") or "0")}
        told.append(one)
    return told


def _short_id(call: dict[str, Any], number: int) -> dict[str, Any]:
    return {**call, "id": _short(call.get("id") or str(number))}


def _short(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]", "", name)[-_ID:].rjust(_ID, "0")


def _in_turns(messages: list[Served], habits: Habits, done: Counter[str]) -> list[Served]:
    """Merge consecutive turns of the same side if the template requires it."""
    told: list[Served] = []
    for one in messages:
        before = told[-1]["role"] if told else ""
        joins = before == one["role"] and (
            (before == "user" and not habits.users) or (before == "assistant" and not habits.assistants)
        )
        if joins:
            told[-1] = _joined(told[-1], one)
            done["joined"] += 1
            continue
        if before == "tool" and one["role"] == "user" and not habits.user_after_results:
            told.append(_said("assistant", ""))
            done["asked_to_go_on"] += 1
        told.append(one)
    return told


def _joined(one: Served, other: Served) -> Served:
    joined = {**one, "content": "\n\n".join(text for text in (one["content"], other["content"]) if text)}
    if calls := [*(one.get("tool_calls") or ()), *(other.get("tool_calls") or ())]:
        joined["tool_calls"] = calls
    return joined
