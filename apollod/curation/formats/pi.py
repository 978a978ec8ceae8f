"""Sessions of pi and of OpenClaw, whose agent writes the same lines.

pi: `~/.pi/agent/sessions/--<directory>--/<time>_<id>.jsonl`. OpenClaw up to 2026.7:
`~/.openclaw/agents/<agent>/sessions/<id>.jsonl`; later ones keep the same lines in SQLite. After pi's
`docs/session-format.md`, versions 1 (a list), 2 and 3 (a tree by `id` and `parentId`). The program's summaries of
compacted messages and of abandoned branches, and shell commands of the user, become messages of the user, with the
words of pi's `messages.ts`.
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from apollod.curation.conversation import BEGINNING, Dropped, Entry, Link, Replaced, Said, Session, Signal, Unknown
from apollod.curation.formats.session_reader import (
    SessionReader,
    context_form,
    form,
    json_object,
    text_of_blocks,
    tool_call,
)

NAME = "pi"
COMPACTED = "The conversation history before this point was compacted into the following summary:\n\n<summary>\n"
LEFT = "The following is a summary of a branch that this conversation came back from:\n\n<summary>\n"
SILENT = frozenset({"thinking_level_change", "label", "custom", "session_info", "leaf", "active_tools_change"})
"""Record types that hold no text of the conversation."""
OF_PROGRAM = frozenset({"gateway-injected", "delivery-mirror"})
"""Model names in answers that OpenClaw itself wrote, for the transcript alone"""


class _Message(msgspec.Struct, rename="camel"):
    role: str = ""
    content: Any = None
    model: str | None = None
    response_id: str | None = None
    stop_reason: str | None = None
    tool_call_id: str | None = None
    is_error: bool = False
    summary: str | None = None
    command: str | None = None
    output: str | None = None
    exit_code: int | None = None
    cancelled: bool = False
    exclude_from_context: bool = False


class _Line(msgspec.Struct, rename="camel"):
    """The fields of a record in use."""

    type: str = ""
    id: str | None = None
    parent_id: str | None = None
    version: int | None = None
    message: _Message | None = None
    model_id: str | None = None
    content: Any = None
    summary: str | None = None
    first_kept_entry_id: str | None = None
    retained_tail: list[_Message] | None = None


_decode = msgspec.json.Decoder(_Line).decode


def recognise(path: str, head: bytes) -> bool:
    """True if the first line is the header of a session."""
    first = head.split(b"\n", 1)[0]
    return bool(re.match(rb'\s*\{[^{]*"type": ?"session"', first)) and b'"id"' in first and b'"sessionId"' not in first


def hear(line: bytes) -> Iterable[Entry]:
    """The entries of one record."""
    record = json_object(line, _decode)
    match record.type:
        case "session":
            version = f"session format {record.version or 1}"
            return (Session(id=record.id or "", agent=NAME, version=version),)
        case "message" if record.message is not None:
            return tuple(_of_message(record.message, record.id or "", _after(record)))
        case "custom_message":
            text = text_of_blocks(record.content, "text")
            return (Said(form("user", text), id=record.id or "", after=_after(record)),)
        case "branch_summary":
            return (_summary(LEFT, record.summary, record.id or "", _after(record)),)
        case "compaction":
            return tuple(_of_compaction(record))
        case "model_change":
            return (*_link(record), Session(model=record.model_id or ""), Dropped(record.type))
        case kind if kind in SILENT:
            return (*_link(record), Dropped(kind))
        case kind:
            return (*_link(record), Unknown(kind))


def _after(record: _Line) -> str | None:
    """The parent of a record; None for records of a list, which have no ids."""
    return (record.parent_id or BEGINNING) if record.id else None


def _link(record: _Line) -> tuple[Link, ...]:
    return (Link(record.id, record.parent_id or BEGINNING),) if record.id else ()


def _of_message(message: _Message, record: str, after: str | None) -> Iterable[Entry]:
    dropped = ""
    match message.role:
        case "user":
            text = text_of_blocks(message.content, "text")
            if text.strip():
                yield Said(form("user", text), id=record, after=after, prompt=True)
            else:
                dropped = "a prompt without text"
        case "assistant" if message.stop_reason in ("error", "aborted"):
            dropped = f"an answer that ended with {message.stop_reason}"
        case "assistant" if message.model in OF_PROGRAM:
            dropped = "an answer that the program wrote"
        case "assistant":
            yield _answer(message, record, after)
        case "toolResult":
            text = text_of_blocks(message.content, "text")
            signals = (Signal("tool-error", text[:200]),) if message.is_error else ()
            said = form("tool", text, tool_call_id=message.tool_call_id)
            yield Said(said, id=record, after=after, signals=signals)
        case "bashExecution" if message.exclude_from_context:
            dropped = "a shell command that the model was not shown"
        case "bashExecution":
            yield Said(form("user", _executed(message)), id=record, after=after)
        case "custom" | "hookMessage":
            yield Said(form("user", text_of_blocks(message.content, "text")), id=record, after=after)
        case "branchSummary":
            yield _summary(LEFT, message.summary, record, after)
        case "compactionSummary":
            yield _summary(COMPACTED, message.summary, record, after)
        case role:
            yield Unknown(f"message: {role}")
            if record and after:
                yield Link(record, after)
    if dropped:
        yield Dropped(dropped)
        if record and after:
            yield Link(record, after)


def _answer(message: _Message, record: str, after: str | None) -> Said:
    blocks = message.content if isinstance(message.content, list) else []
    calls = [
        tool_call(block.get("id"), block.get("name"), block.get("arguments"))
        for block in blocks
        if isinstance(block, dict) and block.get("type") == "toolCall"
    ]
    said = form(
        "assistant",
        text_of_blocks(message.content, "text"),
        reasoning_content=text_of_blocks(blocks, "thinking"),
        tool_calls=calls,
    )
    said = context_form(said) if message.stop_reason == "length" else said  # its end would be learned, too
    return Said(said, id=record, after=after, model=message.model or "", response=message.response_id or "")


def _summary(words: str, summary: str | None, record: str, after: str | None) -> Said:
    return Said(form("user", f"{words}{summary or ''}\n</summary>"), id=record, after=after)


def _executed(message: _Message) -> str:
    """A shell command of the user, in pi's wording for the model."""
    text = f"Ran `{message.command or ''}`\n"
    text += f"```\n{message.output}\n```" if message.output else "(no output)"
    if message.cancelled:
        return f"{text}\n\n(command cancelled)"
    return f"{text}\n\nCommand exited with code {message.exit_code}" if message.exit_code else text


def _of_compaction(record: _Line) -> Iterable[Entry]:
    """A summary in place of all earlier messages, followed by the last ones, which are kept."""
    name = record.id or ""
    said = [_summary(COMPACTED, record.summary, name, None)]
    dropped: list[Entry] = []
    for message in record.retained_tail or ():
        for entry in _of_message(message, name, None):
            (said if isinstance(entry, Said) else dropped).append(entry)  # type: ignore[arg-type]
    keep = record.first_kept_entry_id if record.retained_tail is None else None
    yield Replaced(tuple(said), keep_from=keep or "")
    if keep:
        yield from _link(record)
    yield from dropped


READER = SessionReader(NAME, recognise, hear)
