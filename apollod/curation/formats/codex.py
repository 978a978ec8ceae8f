"""Rollouts of Codex: `~/.codex/sessions/YYYY/MM/DD/rollout-<time>-<id>.jsonl`, packed as `.jsonl.zst` when old.

After codex-rs (`history/src/lib.rs`, `protocol/src/models.rs` of openai/codex; notes by skillsynchq/txcript). Two logs
share the file: `response_item` is the model's input and output, `event_msg` their display on the screen. Only the first
is read; of the second, only acts of the user: interrupt, roll back. Items of one answer have no id in common; they
stand one after another until the results of its calls begin. Old rollouts have no envelope: the items stand in the
lines themselves.
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from apollod.curation.conversation import Dropped, Entry, Marked, Replaced, Rewound, Said, Session, Signal, Unknown
from apollod.curation.formats import turns
from apollod.curation.formats.session_reader import SessionReader, json_object

NAME = "codex"
NOT_PROMPTS = (
    "<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<INSTRUCTIONS>", "<permissions",
    "<turn_aborted>", "<user_shell_command>", "<skill>", "<skills_instructions>", "<apps_instructions>",
    "<plugins_instructions>", "<collaboration_mode>", "<subagent_notification>", "<personality_spec>",
    "<model_switch>", "<realtime_conversation>", "<user_action>",
)  # fmt: skip
"""Beginnings of texts that the program writes under the user's role."""
SILENT = frozenset(
    {
        "world_state", "token_usage_record", "security_risk_score", "retained_context", "realtime_item",
        "inter_agent_communication", "inter_agent_communication_metadata", "session_state", "state",
    }
)  # fmt: skip
SILENT_ITEMS = frozenset(
    {
        "web_search_call", "image_generation_call", "tool_search_call", "tool_search_output", "ghost_snapshot",
        "agent_message", "additional_tools", "compaction", "compaction_summary", "context_compaction",
        "compaction_trigger", "other",
    }
)  # fmt: skip
"""Calls that the server runs itself, and items that are not text."""
MIRRORED = frozenset(
    {
        "user_message", "agent_message", "agent_reasoning", "agent_reasoning_raw_content", "agent_message_delta",
        "agent_reasoning_section_break", "token_count", "task_started", "turn_started", "task_complete",
        "turn_complete", "turn_diff", "patch_apply_begin", "patch_apply_end", "context_compacted", "plan_update",
        "exec_command_begin", "exec_command_end", "web_search_begin", "web_search_end", "mcp_tool_call_begin",
        "mcp_tool_call_end", "entered_review_mode", "exited_review_mode", "view_image_tool_call", "item_started",
        "item_completed", "thread_name_updated", "background_event", "error", "warning", "stream_error",
        "shutdown_complete", "session_configured", "undo_started", "undo_completed", "sub_agent_activity",
        "thread_goal_updated", "image_generation_end", "image_generation_begin", "dynamic_tool_call_request",
        "dynamic_tool_call_response", "guardian_assessment", "model_reroute",
    }
)  # fmt: skip
"""Events that repeat an item, or that only the screen needs."""
ITEMS = frozenset(
    {
        "message", "reasoning", "function_call", "function_call_output", "custom_tool_call",
        "custom_tool_call_output", "local_shell_call",
    }
)  # fmt: skip
FAILED = re.compile(r'^(?:Exit code: |Process exited with code )[1-9]|"exit_code": ?[1-9]', re.MULTILINE)
REFUSED = ("rejected by user", "user rejected", "denied by user")


class _Item(msgspec.Struct):
    """The fields of an item in use."""

    type: str = ""
    id: str | None = None
    role: str | None = None
    content: Any = None
    summary: Any = None
    name: str | None = None
    arguments: Any = None
    input: Any = None
    action: Any = None
    call_id: str | None = None
    output: Any = None


class _Metadata(msgspec.Struct):
    compaction_output: bool = False
    delivered_assistant_message: str | None = None


class _Line(msgspec.Struct):
    type: str = ""
    payload: msgspec.Raw = msgspec.Raw(b"")
    metadata: _Metadata | None = None
    record_type: str = ""
    id: str | None = None
    instructions: str | None = None


class _SessionMeta(msgspec.Struct):
    id: str = ""
    session_id: str | None = None
    cli_version: str | None = None
    base_instructions: Any = None
    instructions: str | None = None
    source: Any = None
    thread_source: Any = None


class _TurnContext(msgspec.Struct):
    model: str | None = None


class _Event(msgspec.Struct):
    type: str = ""
    num_turns: int = 0
    reason: str | None = None


class _Compacted(msgspec.Struct):
    message: str = ""
    replacement_history: list[_Item] | None = None


_line = msgspec.json.Decoder(_Line).decode
_item = msgspec.json.Decoder(_Item).decode
_meta = msgspec.json.Decoder(_SessionMeta).decode
_turn = msgspec.json.Decoder(_TurnContext).decode
_event = msgspec.json.Decoder(_Event).decode
_compacted = msgspec.json.Decoder(_Compacted).decode


def recognise(path: str, head: bytes) -> bool:
    """True if the first line holds the facts of the session."""
    first = head.split(b"\n", 1)[0]
    if re.search(rb'"type": ?"session_meta"', first):
        return b'"payload"' in first
    return b'"type"' not in first and all(key in first for key in (b'"id"', b'"timestamp"', b'"instructions"'))


def hear(line: bytes) -> Iterable[Entry]:
    """The entries of one record."""
    record = json_object(line, _line)
    payload = bytes(record.payload) or b"{}"
    match record.type:
        case "response_item":
            known = record.metadata
            if known is not None and (known.compaction_output or known.delivered_assistant_message):
                return (Dropped("text that the program put into the place of an answer"),)
            return tuple(_of_item(json_object(payload, _item)))
        case "event_msg":
            return (_of_event(json_object(payload, _event)),)
        case "session_meta":
            return _of_session(json_object(payload, _meta))
        case "turn_context":
            return (Session(model=json_object(payload, _turn).model or ""), Dropped(record.type))
        case "compacted":
            return _of_compaction(json_object(payload, _compacted))
        case "" if record.record_type:
            return (Dropped(record.record_type if record.record_type in SILENT else "other"),)
        case "" if record.id:  # the first line without an envelope
            return (Session(id=record.id, agent=NAME, system=record.instructions or ""),)
        case kind if kind in ITEMS or kind in SILENT_ITEMS:
            return tuple(_of_item(json_object(line, _item)))
        case kind if kind in SILENT:
            return (Dropped(kind),)
        case kind:
            return (Unknown(kind),)


def _of_session(meta: _SessionMeta) -> tuple[Entry, ...]:
    base = meta.base_instructions
    system = base.get("text") if isinstance(base, dict) else base
    sub = meta.thread_source == "subagent" or (isinstance(meta.source, dict) and "subagent" in meta.source)
    return (
        Session(
            id=meta.id or meta.session_id or "",
            agent=NAME,
            version=meta.cli_version or "",
            system=system if isinstance(system, str) else meta.instructions or "",
            sidechain=sub,
        ),
    )


def _of_event(event: _Event) -> Entry:
    if event.type == "turn_aborted":
        return Marked(Signal("interrupted", event.reason or "aborted"))
    if event.type == "thread_rolled_back":
        return Rewound(turns=event.num_turns)
    if event.type in MIRRORED:
        return Dropped("an event that items say, too")
    return Unknown(f"event_msg: {event.type}")


def _of_compaction(compacted: _Compacted) -> tuple[Entry, ...]:
    if compacted.replacement_history is None:
        summary = (Said(turns.form("user", compacted.message)),) if compacted.message.strip() else ()
        return (Replaced(summary),)
    entries = [entry for item in compacted.replacement_history for entry in _of_item(item)]
    dropped = (entry for entry in entries if not isinstance(entry, Said))
    return (Replaced(tuple(entry for entry in entries if isinstance(entry, Said))), *dropped)


def _of_item(item: _Item) -> Iterable[Entry]:
    record = item.id or ""
    match item.type or ("message" if item.role else ""):
        case "message" if item.role == "assistant":
            yield Said(turns.form("assistant", _text(item.content)), id=record, continues=True)
        case "message" if item.role == "user":
            text = _text(item.content)
            if text.lstrip().startswith(NOT_PROMPTS):
                yield Dropped("text of the program, not of a person")
            else:
                yield turns.user(text, record)
        case "message":
            yield Dropped(f"a message of {item.role}")
        case "reasoning":
            thought = _text(item.content) or "\n\n".join(_texts(item.summary))
            if thought.strip():
                yield Said(turns.form("assistant", "", reasoning_content=thought), id=record, continues=True)
            else:
                yield Dropped("encrypted reasoning")
        case "function_call":
            yield _called(item, turns.tool_call(item.call_id, item.name, item.arguments))
        case "custom_tool_call":
            yield _called(item, turns.tool_call(item.call_id, item.name, {"input": item.input}))
        case "local_shell_call":
            action = item.action if isinstance(item.action, dict) else {}
            arguments = {key: value for key, value in action.items() if key != "type" and value is not None}
            yield _called(item, turns.tool_call(item.call_id or item.id, "local_shell", arguments))
        case "function_call_output" | "custom_tool_call_output":
            text = _output(item.output)
            head = text[:500]
            refused = any(words in head for words in REFUSED)
            yield turns.tool_result(text, item.call_id, record, FAILED.search(head) is not None, refused)
        case kind if kind in SILENT_ITEMS:
            yield Dropped(kind)
        case kind:
            yield Unknown(f"response_item: {kind}")


def _called(item: _Item, call: dict[str, Any]) -> Said:
    return Said(turns.form("assistant", "", tool_calls=[call]), id=item.id or "", continues=True)


def _texts(parts: Any) -> list[str]:
    """Texts of content parts of any type; images have none."""
    if isinstance(parts, str):
        return [parts]
    parts = parts if isinstance(parts, list) else []
    return [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]


def _text(parts: Any) -> str:
    return "".join(_texts(parts))


def _output(output: Any) -> str:
    """The text of a tool's result: a string, parts, or in older versions an object around them."""
    return _text(output.get("content")) if isinstance(output, dict) else _text(output)


READER = SessionReader(NAME, recognise, hear)
