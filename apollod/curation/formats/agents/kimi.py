"""Sessions of Kimi Code, `~/.kimi-code/sessions/<directory>/<session>/agents/<agent>/wire.jsonl`, and of the older Kimi
CLI, `~/.kimi/sessions/<directory>/<session>/context.jsonl`.

A wire has the additions to the context, in pieces: the user's messages whole, an answer as parts and calls of a step,
results by their calls. `llm.request` and `config.update` name the model. A context has one message a line, and markers
whose roles begin with `_`, and does not name the model. After published samples of the protocols 1.1 to 1.5.
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from apollod.curation.conversation import Dropped, Entry, Marked, Replaced, Rewound, Said, Session, Signal, Unknown
from apollod.curation.formats import turns
from apollod.curation.formats.session_reader import SessionReader, json_object, string

NAME = "kimi"
SILENT = (
    "usage.", "tools.", "turn.", "permission.", "full_compaction.", "plan_mode.", "mcp.", "agent.", "hook.", "goal.",
    "session.", "micro_compaction.", "swarm_mode.", "context.",
)  # fmt: skip
CUT = frozenset({"max_tokens", "length", "error", "aborted", "cancelled"})
"""Finish reasons of steps with an incomplete answer"""
ERROR = "<system>ERROR"
_refused = re.compile(r"rejected by (?:the )?user|user (?:has )?rejected", re.IGNORECASE).search
_marker = re.compile(rb'"role":\s?"_(?:system_prompt|checkpoint|usage)"').search


class _Origin(msgspec.Struct):
    kind: str | None = None


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: Any = None


class _Call(msgspec.Struct):
    id: str | None = None
    name: str | None = None
    arguments: Any = None
    function: _Function | None = None


class _Message(msgspec.Struct, rename="camel"):
    role: str | None = None
    content: Any = None
    id: str | int | None = None
    origin: _Origin | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None


class _Event(msgspec.Struct, rename="camel"):
    type: str = ""
    step_uuid: str | None = None
    part: Any = None
    tool_call_id: str | None = None
    name: str | None = None
    args: Any = None
    result: Any = None
    finish_reason: str | None = None


class _Line(msgspec.Struct, rename="camel"):
    type: str | None = None
    message: _Message | None = None
    event: _Event | None = None
    model: str | None = None
    model_alias: str | None = None
    system_prompt: str | None = None
    summary: str | None = None
    context_summary: str | None = None
    count: int | None = None
    # fields of lines in context files
    role: str | None = None
    content: Any = None
    id: str | int | None = None
    tool_calls: list[_Call] | None = msgspec.field(name="tool_calls", default=None)
    tool_call_id: str | None = msgspec.field(name="tool_call_id", default=None)


_decode = msgspec.json.Decoder(_Line).decode


def recognise(path: str, head: bytes) -> bool:
    """True if the first line has the version of the protocol, or for a context, an early line has a marker."""
    lines = head.split(b"\n")[:20]
    first = lines[0]
    if b'"protocol_version"' in first and b'"metadata"' in first:
        return True
    return any(b'"type":"context.append_' in line for line in lines[:3]) or any(_marker(line) for line in lines)


def hear(line: bytes) -> Iterable[Entry]:
    """The entries of one line."""
    record = json_object(line, _decode)
    if record.role is not None:
        message = _Message(record.role, record.content, record.id, None, record.tool_calls, record.tool_call_id)
        yield from _of_context(message)
        return
    match record.type:
        case "context.append_message" if record.message is not None:
            yield from _of_message(record.message)
        case "context.append_loop_event" if record.event is not None:
            yield from _of_event(record.event)
        case "context.undo":
            yield Rewound(turns=record.count or 1)
        case "context.clear":
            yield Replaced(())
        case "context.apply_compaction" if record.context_summary or record.summary:
            yield Replaced((Said(turns.form("user", record.context_summary or record.summary or "")),))
        case "turn.cancel":
            yield Marked(Signal("interrupted", "turn.cancel"))
        case "config.update" | "profile.bind" | "llm.request" | "metadata":
            model = record.model or (record.model_alias or "").rpartition("/")[2]
            yield Session(agent=NAME, model=model, system=record.system_prompt or "")
        case str(kind):
            yield Dropped(f"{kind} of the program") if kind.startswith(SILENT) else Unknown(kind)
        case None:
            yield Dropped("a line of an older wire; context.jsonl says the same")


def _of_context(message: _Message) -> Iterable[Entry]:
    if message.role == "_system_prompt" and isinstance(message.content, str):
        yield Session(agent=NAME, system=message.content)
    elif (message.role or "").startswith("_"):
        yield Dropped(f"{message.role} of the program")
    else:
        yield Session(agent=NAME)
        yield from _of_message(message)


def _of_message(message: _Message) -> Iterable[Entry]:
    name = str(message.id) if message.id is not None else ""
    text = turns.text_of_blocks(message.content, "text")
    match message.role:
        case "user" if text.startswith(("<system>", "<system-reminder>")):
            yield Dropped("text of the program, not of a person")
        case "user":
            yield turns.user(text, name, message.origin is None or message.origin.kind in (None, "user"))
        case "assistant":
            calls = [
                turns.tool_call(one.id, one.function.name, one.function.arguments)
                if one.function
                else turns.tool_call(one.id, one.name, one.arguments)
                for one in message.tool_calls or ()
            ]
            yield Said(turns.answer(text, _thought(message.content), calls), id=name)
        case "tool":
            yield _result(message.tool_call_id, text, text.startswith(ERROR), name)
        case role:
            yield Unknown(f"role: {role}")


def _of_event(event: _Event) -> Iterable[Entry]:
    step = event.step_uuid or ""
    match event.type:
        case "content.part" if isinstance(event.part, dict):
            text, thought = turns.text_of_blocks([event.part], "text"), _thought([event.part])
            if text or thought:
                yield Said(turns.answer(text, thought), id=step, part_of=step, continues=not step)
        case "tool.call":
            said = turns.answer("", calls=[turns.tool_call(event.tool_call_id, event.name, event.args)])
            yield Said(said, id=step, part_of=step, continues=not step)
        case "tool.result":
            told = event.result if isinstance(event.result, dict) else {}
            output = told.get("output", event.result)
            text = turns.text_of_blocks(output, "text") if isinstance(output, list) else turns.json_text(output)
            yield _result(event.tool_call_id, text, bool(told.get("isError")), "")
        case "step.end" if event.finish_reason in CUT:
            yield Marked(Signal("interrupted", f"finishReason {event.finish_reason}"))
        case kind if kind.startswith(("step.", "content.", "llm.", "turn.", "tool.")):
            yield Dropped(f"{kind} of the program")
        case kind:
            yield Unknown(f"event: {kind}")


def _result(call: str | None, text: str, failed: bool, name: str) -> Said:
    return turns.tool_result(text, call, name, failed, failed and _refused(text[:300]) is not None)


def _thought(content: Any) -> str:
    """The text of parts of type `think`."""
    thoughts = [one.get("think", one.get("text")) for one in turns.blocks_of(content) if one.get("type") == "think"]
    return "".join(map(string, thoughts))


READER = SessionReader(NAME, recognise, hear)
