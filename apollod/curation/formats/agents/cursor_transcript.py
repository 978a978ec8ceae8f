"""Transcripts of Cursor's agent: `~/.cursor/projects/<directory>/agent-transcripts/**/*.jsonl`.

A line is a message in Anthropic's shape without results of calls. It does not name the model: set `models = ["*"]` for
a tree in which only the served model answers. The user's prompt stands in `<user_query>`.
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from apollod.curation.conversation import Dropped, Entry, Marked, Said, Session, Signal, Unknown
from apollod.curation.formats.session_reader import SessionReader, form, json_object, text_of_blocks, tool_call

NAME = "cursor-transcript"
QUERY = ("<user_query>", "</user_query>")
_message = re.compile(rb'\s*\{\s*"role":\s*"(?:user|assistant)",\s*"message":\s*\{\s*"content":\s*[\["]').match


class _Message(msgspec.Struct):
    content: Any = None


class _Line(msgspec.Struct):
    role: str | None = None
    type: str | None = None
    status: str | None = None
    message: _Message | None = None


_decode = msgspec.json.Decoder(_Line).decode


def recognise(path: str, head: bytes) -> bool:
    """True if the first line begins with a role and a message with content."""
    return bool(_message(head))


def hear(line: bytes) -> Iterable[Entry]:
    """The entries of one line."""
    record = json_object(line, _decode)
    content = record.message.content if record.message else None
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    text = text_of_blocks(blocks, "text")
    match record.role:
        case "user":
            begin, end = text.find(QUERY[0]), text.rfind(QUERY[1])
            asked = text[begin + len(QUERY[0]) : end].strip() if 0 <= begin < end else text
            yield Session(agent=NAME)
            yield Said(form("user", asked), prompt=True) if asked.strip() else Dropped("a prompt without text")
        case "assistant":
            used = [block for block in blocks if isinstance(block, dict) and block.get("type") == "tool_use"]
            calls = [tool_call(block.get("id"), block.get("name"), block.get("input")) for block in used]
            yield Said(form("assistant", text, tool_calls=calls))
        case None if record.type == "turn_ended":
            if record.status in ("error", "aborted", "cancelled"):
                yield Marked(Signal("interrupted", f"turn_ended: {record.status}"))
        case kind:
            yield Unknown(f"role: {kind or record.type}")


READER = SessionReader(NAME, recognise, hear)
