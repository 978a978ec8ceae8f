"""Chats of Gemini CLI: `~/.gemini/tmp/<project>/chats/session-*.json`, later `.jsonl`.

After `chatRecordingTypes.ts` and `chatRecordingService.ts` of google-gemini/gemini-cli. The older file is one document
that is rewritten each time; the newer one has its messages as lines, with `$set` for facts and `$rewindTo` for messages
that were taken back. A repeated message replaces the earlier one: results of tools are added to it later. A result is
in the message of its call.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

import msgspec

from apollod.curation.conversation import Dropped, Entry, Rewound, Said, Session, Unknown
from apollod.curation.formats import turns
from apollod.curation.formats.document import in_documents
from apollod.curation.formats.session_reader import SessionReader, json_object

NAME = "gemini-cli"
OF_THE_PROGRAM = frozenset({"info", "error", "warning"})


class _Call(msgspec.Struct):
    id: str | None = None
    name: str | None = None
    args: Any = None
    result: Any = None
    status: str | None = None


class _Message(msgspec.Struct, rename="camel"):
    """A message, and with the same fields a line."""

    id: str | None = None
    type: str | None = None
    content: Any = None
    model: str | None = None
    thoughts: Any = None
    tool_calls: list[_Call] | None = None


class _Facts(msgspec.Struct, rename="camel"):
    session_id: str | None = None
    kind: str | None = None
    messages: list[_Message] | None = None


class _Line(_Message, rename="camel"):
    session_id: str | None = None
    project_hash: str | None = None
    kind: str | None = None
    messages: _Message | None = None
    rewind_to: str | None = msgspec.field(name="$rewindTo", default=None)
    facts: _Facts | None = msgspec.field(name="$set", default=None)


_decode = msgspec.json.Decoder(_Line).decode


def _recognise(document: bool, path: str, head: bytes) -> bool:
    """True for the beginning of a session of a project: of a document, which holds the messages too, or of a log."""
    begin = head.lstrip()
    if not (begin.startswith(b"{") and b'"sessionId"' in begin[:2000]):
        return False
    if b'"projectHash"' not in begin[:2000] and b'"lastUpdated"' not in begin[:2000]:
        return False
    try:
        _decode(begin.split(b"\n", 1)[0])
        return not document
    except msgspec.MsgspecError:
        return document != path.endswith(".jsonl")


def hear(record: bytes) -> Iterable[Entry]:
    """The entries of a line, or of a part of a document."""
    line = json_object(record, _decode)
    if line.rewind_to is not None:
        return (Rewound(before=line.rewind_to),)
    if line.facts is not None:
        return tuple(_of_facts(line.facts))
    message = line.messages or (line if line.id is not None else None)
    if message is not None:
        return tuple(_of_message(message))
    if line.session_id or line.kind:
        return (_session(line.session_id, line.kind),)
    return (Dropped("facts about the session"),)


def _session(name: str | None, kind: str | None) -> Session:
    return Session(id=name or "", agent=NAME, sidechain=kind == "subagent")


def _of_facts(facts: _Facts) -> Iterable[Entry]:
    if facts.session_id or facts.kind:
        yield _session(facts.session_id, facts.kind)
    else:
        yield Dropped("facts about the session")
    if facts.messages is not None:
        for message in facts.messages:  # all of them again
            yield from (entry for entry in _of_message(message) if isinstance(entry, Said))


def _of_message(message: _Message) -> Iterable[Entry]:
    record = message.id or ""
    text = turns.texts_of_parts(message.content)
    match message.type:
        case "user" if results := turns.in_parts(message.content, "functionResponse"):
            for result in results:
                said = turns.form("tool", turns.text_of_response(result.get("response")), tool_call_id=result.get("id"))
                yield Said(said, id=record, part_of=f"result {result.get('id') or record}", replaces=True)
        case "user" if text.strip():
            yield Said(turns.form("user", text), id=record, part_of=record, replaces=True, prompt=True)
        case "user":
            yield Dropped("a prompt without text")
        case "gemini" | "model":
            yield from _answer(message, record, text)
        case kind if kind in OF_THE_PROGRAM:
            yield Dropped(f"{kind} of the program")
        case kind:
            yield Unknown(f"message: {kind}")


def _answer(message: _Message, record: str, text: str) -> Iterable[Entry]:
    calls = message.tool_calls or []
    thoughts = message.thoughts if isinstance(message.thoughts, list) else []
    headed = [f"{one.get('subject', '')}: {one.get('description', '')}" for one in thoughts if isinstance(one, dict)]
    thought = turns.texts_of_parts(message.content, thought=True) or "\n".join(headed)
    said = turns.answer(text, thought, [turns.tool_call(call.id, call.name, call.args) for call in calls])
    yield Said(said, id=record, part_of=record, replaces=True, model=message.model or "")
    for call in calls:
        if call.result is None and call.status not in ("error", "cancelled"):
            continue  # it is still running
        found = (one.get("response") for one in turns.in_parts(call.result, "functionResponse"))
        result = "".join(map(turns.text_of_response, found)) or turns.texts_of_parts(call.result)
        signals = turns.trouble(result, call.status == "error", call.status == "cancelled")
        tool = turns.form("tool", result, tool_call_id=call.id)
        yield Said(tool, id=record, part_of=f"result {call.id}", replaces=True, signals=signals)


READER = SessionReader(NAME, partial(_recognise, False), hear)
DOCUMENT = SessionReader(f"{NAME}-document", partial(_recognise, True), hear, in_documents("messages"))
