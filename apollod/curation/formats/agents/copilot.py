"""Sessions of GitHub Copilot's command line: `~/.copilot/session-state/<session>/events.jsonl`.

An event a line: `{type, data, id, timestamp, parentId}`, where `parentId` is only the event before. After
`session-events.ts` of github/copilot-sdk and published samples of its versions 1.0. An answer is one event with its
calls; results come as events of their own. The answer names the model, else `session.model_change` does. Events of a
subagent are interleaved with those of the agent that started it.
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from apollod.curation.conversation import (
    Dropped,
    Entry,
    Link,
    Marked,
    Replaced,
    Rewound,
    Said,
    Session,
    Signal,
    Unknown,
)
from apollod.curation.formats import turns
from apollod.curation.formats.session_reader import SessionReader, json_object, string

NAME = "copilot-cli"
SILENT = (
    "session.", "assistant.", "tool.", "hook.", "subagent.", "skill.", "permission.", "user_input.", "elicitation.",
    "system.notification", "command", "mcp", "exit_plan_mode.", "auto_mode", "model", "external_tool.",
)  # fmt: skip
"""Prefixes of event types that hold no text of the conversation"""
_start = re.compile(rb'\s*\{(?:[^{}]*,)?\s*"type":\s*"session\.(?:start|resume)"').match
_refused = re.compile(r"reject|denied|declin", re.IGNORECASE).search


class _Request(msgspec.Struct, rename="camel"):
    tool_call_id: str | None = None
    name: str | None = None
    arguments: Any = None


class _Data(msgspec.Struct, rename="camel"):
    """The fields that are read of any event."""

    session_id: str | None = None
    copilot_version: str | None = None
    selected_model: str | None = None
    new_model: str | None = None
    model: str | None = None
    role: str | None = None
    content: str | None = None
    source: str | None = None
    message_id: str | None = None
    reasoning_text: str | None = None
    tool_requests: list[_Request] | None = None
    parent_tool_call_id: str | None = None
    tool_call_id: str | None = None
    success: bool | None = None
    result: Any = None
    error: Any = None
    reason: str | None = None
    summary_content: str | None = None
    up_to_event_id: str | None = None


class _Event(msgspec.Struct, rename="camel"):
    type: str = ""
    id: str | None = None
    parent_id: str | None = None
    agent_id: str | None = None
    data: _Data | None = None


_decode = msgspec.json.Decoder(_Event).decode


def recognise(path: str, head: bytes) -> bool:
    """True if the first line begins a session."""
    return bool(_start(head)) and b'"sessionId"' in head.split(b"\n", 1)[0]


def hear(line: bytes) -> Iterable[Entry]:
    """The entries of one event."""
    event = json_object(line, _decode)
    data, name = event.data or _Data(), event.id or ""
    if event.agent_id or data.parent_tool_call_id:
        yield Dropped("what a subagent did")
        return
    match event.type:
        case "session.start" | "session.resume" | "session.model_change":
            yield Session(
                id=data.session_id or "", agent=NAME, version=data.copilot_version or "",
                model=data.new_model or data.selected_model or "",
            )  # fmt: skip
        case "system.message" if data.content:
            yield Session(system=data.content)
        case "user.message" if (data.content or "").strip():
            asked = data.source in (None, "", "user")  # else a skill, a schedule or the program
            yield Said(turns.form("user", data.content or ""), id=name, prompt=asked)
        case "assistant.message":
            yield _answer(data, name)
        case "tool.execution_complete":
            yield _result(data, name)
        case "abort":
            yield Marked(Signal("interrupted", data.reason or "abort"))
        case "session.compaction_complete" if data.success and data.summary_content:
            yield Replaced((Said(turns.form("user", data.summary_content)),))
        case "session.snapshot_rewind" if data.up_to_event_id:
            yield Rewound(to=data.up_to_event_id)
        case kind:
            if name:
                yield Link(name, event.parent_id or "")
            known = kind.startswith(SILENT) or kind in ("user.message", "system.message")
            yield Dropped(f"{kind} of the program") if known else Unknown(kind)


def _answer(data: _Data, name: str) -> Said:
    calls = [turns.tool_call(call.tool_call_id, call.name, call.arguments) for call in data.tool_requests or ()]
    said = turns.answer(data.content or "", data.reasoning_text, calls)
    return Said(said, id=name, model=data.model or "", response=data.message_id or "")


def _result(data: _Data, name: str) -> Said:
    error = data.error if isinstance(data.error, dict) else {"message": data.error}
    told, content = string(error.get("message")), data.result
    content = content.get("content", content) if isinstance(content, dict) else content  # as the model saw it
    text = ("" if content is None else turns.json_text(content)) or told
    failed, refused = data.success is False, _refused(string(error.get("code"))) is not None
    signals = turns.trouble(told or text, failed, failed and refused)
    return Said(turns.form("tool", text, tool_call_id=data.tool_call_id), id=name, signals=signals)


READER = SessionReader(NAME, recognise, hear)
