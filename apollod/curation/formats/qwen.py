"""Sessions of Qwen Code: `~/.qwen/projects/<directory>/chats/<session>.jsonl`, subagents in files of their own.

After `chatRecordingService.ts` of QwenLM/qwen-code: the envelope is that of Claude Code, a tree by `uuid` and
`parentUuid`, and the content is Gemini's parts. A rewind is a record that follows an earlier one; a compression has the
history that the model sees from there on.
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from apollod.curation.conversation import BEGINNING, Dropped, Entry, Link, Replaced, Rewound, Said, Session, Unknown
from apollod.curation.formats import turns
from apollod.curation.formats.session_reader import SessionReader, json_object

NAME = "qwen-code"
NOT_PROMPTS = frozenset({"notification", "cron", "goal_runtime", "agent_bootstrap", "background_task_completed"})
"""Subtypes of messages under the user's role that no person wrote; the model saw them."""


class _Content(msgspec.Struct):
    role: str | None = None
    parts: Any = None


class _Result(msgspec.Struct, rename="camel"):
    status: str | None = None


class _Payload(msgspec.Struct, rename="camel"):
    compressed_history: list[_Content] | None = None


class _Line(msgspec.Struct, rename="camel"):
    """The fields of a record in use."""

    type: str = ""
    subtype: str | None = None
    uuid: str | None = None
    parent_uuid: str | None = None
    session_id: str | None = None
    agent_id: str | None = None
    version: str | None = None
    is_sidechain: bool | None = None
    model: str | None = None
    message: _Content | None = None
    tool_call_result: _Result | None = None
    system_payload: _Payload | None = None


_decode = msgspec.json.Decoder(_Line).decode
_of_qwen = re.compile(rb'"message": ?\{[^{}\[\]]*"parts": ?\[|"systemPayload": ?\{').search


def recognise(path: str, head: bytes) -> bool:
    """True if an early record has a session id, and Gemini's parts or a payload of Qwen Code."""
    for line in head.split(b"\n")[:20]:
        if b'"sessionId"' in line and _of_qwen(line):
            return True
    return False


def hear(line: bytes) -> Iterable[Entry]:
    """The entries of one record."""
    record = json_object(line, _decode)
    return (
        Session(
            id=record.agent_id or record.session_id or "",
            agent=NAME,
            version=record.version or "",
            sidechain=bool(record.is_sidechain),
        ),
        *_of_record(record),
    )


def _of_record(record: _Line) -> Iterable[Entry]:
    name, after = record.uuid or "", (record.parent_uuid or BEGINNING) if record.uuid else None
    if record.message is not None and record.type in ("user", "assistant", "tool_result"):
        yield from _of_content(record.message, record, name, after)
        return
    history = record.system_payload.compressed_history if record.system_payload is not None else None
    if history is not None:
        bare = _Line()
        entries = [entry for content in history for entry in _of_content(content, bare, name, None)]
        yield Replaced(tuple(entry for entry in entries if isinstance(entry, Said)))
    elif name:
        if record.subtype == "rewind":
            yield Rewound(to=after or "")
        yield Link(name, after or "")
    if record.type == "system":
        yield Dropped(f"system: {(record.subtype or 'other')[:60]}")
    else:
        yield Unknown(record.type)


def _of_content(content: _Content, record: _Line, name: str, after: str | None) -> Iterable[Entry]:
    results = turns.in_parts(content.parts, "functionResponse")
    calls = turns.in_parts(content.parts, "functionCall")
    text, thought = turns.texts_of_parts(content.parts), turns.texts_of_parts(content.parts, thought=True)
    if content.role == "model" or (content.role is None and record.type == "assistant"):
        made = [turns.tool_call(call.get("id"), call.get("name"), call.get("args")) for call in calls]
        said = turns.answer(text, thought, made)
        yield Said(said, id=name, after=after, model=record.model or "")
        return
    status = record.tool_call_result.status if record.tool_call_result is not None else None
    for one in results:
        response = turns.text_of_response(one.get("response"))
        yield turns.tool_result(response, one.get("id"), name, status == "error", status == "cancelled", after)
        after = None
    if text.strip():
        prompt = not results and record.subtype not in NOT_PROMPTS
        yield Said(turns.form("user", text), id=name, after=after, prompt=prompt)
    elif not results:
        yield Dropped("a prompt without text")
        if name:
            yield Link(name, after or "")


READER = SessionReader(NAME, recognise, hear)
