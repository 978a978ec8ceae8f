"""Writes examples as rows and documents for other programs; our own readers get the same examples back from them.

A canonical record loses nothing on the way: content for which a form has no field goes into one of ours (ATIF's
`extra`), or the record has no form at all and is left out.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from apollod.core.facts.intake.events import Origin
from apollod.curation.conversation import Said, Session, is_learned
from apollod.curation.formats.atif import hear
from apollod.curation.formats.session_reader import attempt
from apollod.wire.comparisons import COMPARED
from apollod.wire.records import Form

ATIF_VERSION = "ATIF-v1.7"
"""version of the Agent Trajectory Interchange Format: the first with `trajectory_id`"""
PLACE = "apollod"
"""our key in the `extra` of a trajectory"""


NO_FORM = "answers that are compared, for which the format has no form: left out"


class Exported(NamedTuple):
    """An example from the journal. `form`: its canonical record as JSON values; `facts`: further facts, written if the
    format has room for them."""

    id: str
    form: dict[str, Any]
    origin: Origin
    facts: dict[str, Any]


class Row(NamedTuple):
    """One line of an export. `note`: a warning for users of the export, in general words; `value` None: the example has
    no such form."""

    value: dict[str, Any] | None
    note: str = ""


def openai(example: Exported) -> Row:
    """A row for OpenAI's fine-tuning: arguments of calls as JSON text, `weight` 0 for answers that are context."""
    form = example.form
    if "pair" in form and "messages" in form["pair"]["better"]:
        return Row(_openai_pair(form["pair"]))
    if not form.keys().isdisjoint(COMPARED):
        return Row(None, NO_FORM)
    if "messages" not in form:
        return Row(form, "no conversation: written as prompt and completion, or text, which OpenAI's API does not take")
    return Row({**form, "messages": [_with_argument_text(message) for message in form["messages"]]})


def _openai_pair(pair: dict[str, Any]) -> dict[str, Any]:
    """OpenAI's row of a preference."""
    better, worse = ([_with_argument_text(one) for one in pair[which]["messages"]] for which in ("better", "worse"))
    tools = {"tools": pair["better"]["tools"]} if "tools" in pair["better"] else {}
    return {
        "input": {"messages": better[:-1], **tools}, "preferred_output": better[-1:],
        "non_preferred_output": worse[-1:],
    }  # fmt: skip


def _with_argument_text(message: Form) -> Form:
    if "tool_calls" not in message:
        return message
    calls = [
        {**call, "function": {**call["function"], "arguments": _json(call["function"]["arguments"])}}
        for call in message["tool_calls"]
    ]
    return {**message, "tool_calls": calls}


def trl(example: Exported) -> Row:
    """A row for TRL: `prompt` and `completion` if the learned answers are the end of the conversation, as TRL masks it,
    else `messages`, of which `assistant_only_loss` learns every answer."""
    form = example.form
    if "group" in form:
        return Row(None, NO_FORM)
    if "pair" in form:
        return Row(_trl_pair(form["pair"]))
    if "rated" in form:
        row, note = trl(example._replace(form=form["rated"]["answer"]))
        return Row({**(row or {}), "label": form["rated"]["good"]}, note)
    if "messages" not in form:
        return Row(form)
    messages: list[Form] = form["messages"]
    begin = len(messages)
    while begin and is_learned(messages[begin - 1]):
        begin -= 1
    tools = {"tools": form["tools"]} if "tools" in form else {}
    if 0 < begin < len(messages) and not any(map(is_learned, messages[:begin])):
        prompt = [{key: value for key, value in one.items() if key != "weight"} for one in messages[:begin]]
        return Row({"prompt": prompt, "completion": messages[begin:], **tools})
    context = any(one["role"] == "assistant" and not is_learned(one) for one in messages)
    note = "answers with weight 0 among what is learned: TRL does not know the weight and would learn them"
    return Row({"messages": messages, **tools}, note if context else "")


def _trl_pair(pair: dict[str, Any]) -> dict[str, Any]:
    """TRL's row of a preference."""
    better, worse = pair["better"], pair["worse"]
    if "messages" not in better:
        return {"prompt": better["prompt"], "chosen": better["completion"], "rejected": worse["completion"]}
    tools = {"tools": better["tools"]} if "tools" in better else {}
    prompt = [{key: value for key, value in one.items() if key != "weight"} for one in better["messages"][:-1]]
    return {"prompt": prompt, "chosen": better["messages"][-1:], "rejected": worse["messages"][-1:], **tools}


def atif(example: Exported) -> Row:
    """A trajectory; answers that are context get `is_copied_context`, ATIF's mark for steps not to learn."""
    form, origin = example.form, example.origin
    if not form.keys().isdisjoint(COMPARED):
        return Row(None, NO_FORM)
    if "messages" not in form:
        return Row(None, "no conversation, for which ATIF has no form: left out")
    steps: list[dict[str, Any]] = []
    told: list[list[Form]] = []
    for message in form["messages"]:
        if message["role"] == "tool" and steps and steps[-1].get("tool_calls"):
            results = steps[-1].setdefault("observation", {"results": []})["results"]
            results.append(_result(message))
            told[-1].append(message)
        else:
            steps.append({"step_id": len(steps) + 1, **_step(message)})
            told.append([message])
    begun = False
    for step, messages in zip(steps, told, strict=True):
        ours: dict[str, Any] = {}
        if _as_read(step) != messages or _instructs_twice(form["messages"], step):
            ours["messages"] = messages
        if step["source"] == "user" and begun:
            ours["within"] = True
        begun = begun or step["source"] != "system"
        if ours:
            step["extra"] = {PLACE: ours}
    agent: dict[str, Any] = {"name": origin.agent or PLACE, "version": origin.version or "unknown"}
    if origin.model:
        agent["model_name"] = origin.model
    if "tools" in form:
        agent["tool_definitions"] = form["tools"]
    document = {
        "schema_version": ATIF_VERSION,
        "session_id": origin.session or example.id,
        "trajectory_id": example.id,
        "agent": agent,
        "steps": steps,
        "extra": {PLACE: example.facts},
    }
    goes_on = "conversations go on after what is learned, which is dropped when they are read again"
    return Row(document, "" if is_learned(form["messages"][-1]) else goes_on)


def _instructs_twice(messages: Sequence[Form], step: dict[str, Any]) -> bool:
    """True if another system prompt follows the first step, which is read as the session's."""
    return step["step_id"] == 1 and [one["role"] for one in messages[:2]] == ["system", "system"]


def _step(message: Form) -> dict[str, Any]:
    """A message as a step without its number; a result without a call before it becomes a user's message."""
    source = {"assistant": "agent", "system": "system", "developer": "system"}.get(message["role"], "user")
    step: dict[str, Any] = {"source": source, "message": message["content"]}
    if "reasoning_content" in message:
        step["reasoning_content"] = message["reasoning_content"]
    if message.get("tool_calls"):
        step["tool_calls"] = [
            {
                "tool_call_id": call.get("id", ""),
                "function_name": call["function"]["name"],
                "arguments": call["function"]["arguments"],
            }
            for call in message["tool_calls"]
        ]
    if source == "agent" and not is_learned(message):
        step["is_copied_context"] = True
    return step


def _result(message: Form) -> dict[str, Any]:
    call = {"source_call_id": message["tool_call_id"]} if "tool_call_id" in message else {}
    return {**call, "content": message["content"]}


def _as_read(step: dict[str, Any]) -> list[Form]:
    """The messages that a reader without our `extra` makes of a step."""
    found = attempt(hear, msgspec.json.encode({"steps": step})).entries
    system = [{"content": one.system, "role": "system"} for one in found if isinstance(one, Session)]
    return [*system, *(one.message for one in found if isinstance(one, Said))]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


CONTEXT_THOUGHTS = "thoughts with reasoning_weight 0, which are context: whoever does not know that learns them"


def _whole(write: Callable[[Exported], Row]) -> Callable[[Exported], Row]:
    """Wrap a writer so that an answer split into parts to fit our steps is written once, whole, in place of its first
    part."""

    def row(example: Exported) -> Row:
        messages = example.form.get("messages", ())
        part = next((one["part"] for one in messages if "part" in one), None)
        if part is None:
            thoughts = any("reasoning_weight" in one for one in messages)
            written = write(example)
            return written._replace(note=CONTEXT_THOUGHTS) if thoughts and not written.note else written
        if part[0]:
            return Row(None, "a later part of a long answer, which is written whole in place of its first part")
        whole = [{key: value for key, value in one.items() if key != "part"} for one in messages]
        return write(example._replace(form={**example.form, "messages": whole}))

    return row


FORMS: dict[str, Callable[[Exported], Row]] = {"trl": _whole(trl), "openai": _whole(openai), "atif": _whole(atif)}
