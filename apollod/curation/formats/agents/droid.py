"""Sessions of Factory's Droid: `~/.factory/sessions/<directory>/<session>.jsonl`.

A line is a message in Anthropic's shape behind a `session_start`. The model stands in `<session>.settings.json` beside
it, which a reader of one file does not see: set `models = ["*"]` for a tree in which only the served model answers.
After published samples of version 2 of the format.
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from apollod.curation.conversation import Dropped, Entry, Replaced, Said, Session, Unknown
from apollod.curation.formats import turns
from apollod.curation.formats.session_reader import SessionReader, json_object

NAME = "factory-droid"
SILENT = frozenset({"todo_state", "session_end", "session_title", "session_update", "tool_state"})
REMINDER = "<system-reminder>"
_start = re.compile(rb'\s*\{\s*"type":\s*"session_start"').match
_refused = re.compile(r"(?:cancel|reject|declin|denied)\w* by (?:the )?user", re.IGNORECASE).search


class _Message(msgspec.Struct, rename="camel"):
    role: str | None = None
    content: Any = None
    visibility: str | None = None
    model: str | None = None
    model_id: str | None = None


class _Line(msgspec.Struct, rename="camel"):
    type: str = ""
    id: str | None = None
    model: str | None = None
    parent_session_id: str | None = msgspec.field(name="callingSessionId", default=None)
    summary_text: str | None = None
    message: _Message | None = None


_decode = msgspec.json.Decoder(_Line).decode


def recognise(path: str, head: bytes) -> bool:
    """True if the first line begins a session with a directory, or a message in blocks follows it."""
    first, _, rest = head.partition(b"\n")
    return bool(_start(first)) and (b'"cwd"' in first or b'"type":"message"' in rest.replace(b" ", b"")[:4000])


def hear(line: bytes) -> Iterable[Entry]:
    """The entries of one record."""
    record = json_object(line, _decode)
    match record.type:
        case "session_start":
            caller = bool(record.parent_session_id)
            yield Session(id=record.id or "", agent=NAME, model=record.model or "", sidechain=caller)
        case "message" if record.message is not None:
            yield from _message(record.message, record.id or "")
        case "compaction_state" if record.summary_text:
            yield Replaced((Said(turns.form("user", record.summary_text)),))
        case kind if kind in SILENT or kind == "compaction_state":
            yield Dropped(kind)
        case kind:
            yield Unknown(kind)


def _message(message: _Message, name: str) -> Iterable[Entry]:
    blocks = turns.blocks_of(message.content)
    if message.role == "assistant":
        said = turns.answer_of_blocks(blocks)
        yield Said(said, id=name, model=message.model or message.model_id or "")
    elif message.role != "user":
        yield Unknown(f"role: {message.role}")
    elif message.visibility == "llm_only":
        yield Dropped("text of the program, not of a person")
    else:
        yield from _user(blocks, name)


def _user(blocks: list[dict[str, Any]], name: str) -> Iterable[Entry]:
    results = [block for block in blocks if block.get("type") == "tool_result"]
    for block in results:
        text, failed = turns.text_of_blocks(block.get("content"), "text"), bool(block.get("is_error"))
        refused = failed and _refused(text[:300]) is not None
        yield turns.tool_result(text, block.get("tool_use_id"), name, failed, refused)
    texts = [turns.text_of_blocks([block], "text") for block in blocks]
    text = "".join(text for text in texts if not text.lstrip().startswith(REMINDER))
    if text.strip():
        yield Said(turns.form("user", text), id=name, prompt=not results)
    elif not results:
        yield Dropped("text of the program, not of a person")


READER = SessionReader(NAME, recognise, hear)
