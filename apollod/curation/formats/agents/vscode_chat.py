"""Chats of GitHub Copilot in VS Code: `workspaceStorage/*/chatSessions/<id>.json`, later `.jsonl`.

The older file is one document with a list of requests. The newer one begins with such a document (`kind` 0) and goes on
with its changes: values that are set (1), elements that are appended (2; with `i`, the elements from there on are
replaced) and members that are deleted (3). The editor does not display an answer as the model wrote it, so answers,
calls and results are taken from `result.metadata` (`toolCallRounds`, `toolCallResults`); where that is missing, the
displayed text, if it is nothing but text. After `chatModel.ts` of microsoft/vscode and a published chat.
"""

import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import msgspec

from apollod.curation.conversation import (
    BEGINNING,
    Dropped,
    Entry,
    Marked,
    Replaced,
    Rewound,
    Said,
    Session,
    Signal,
    Unknown,
    Whole,
)
from apollod.curation.formats import turns
from apollod.curation.formats.document import in_documents
from apollod.curation.formats.session_reader import SessionReader, json_object, string

NAME = "vscode-chat"
PARTS_MAX = 200_000
"""most nodes of one result, which is a tree"""
_document = re.compile(rb'\s*\{\s*"(?:version|requesterUsername|responderUsername|sessionId|initialLocation)"').match
_log = re.compile(rb'\s*\{\s*"kind":\s*0,\s*"v":\s*\{').match


class _Message(msgspec.Struct):
    text: str | None = None


class _Call(msgspec.Struct):
    id: str | None = None
    name: str | None = None
    arguments: Any = None


class _Round(msgspec.Struct, rename="camel"):
    response: str | None = None
    thinking: Any = None
    tool_calls: list[_Call] | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    tool_call_rounds: list[_Round] | None = None
    tool_call_results: Any = None
    rendered_user_message: Any = None
    resolved_model: str | None = None


class _Result(msgspec.Struct, rename="camel"):
    metadata: _Metadata | None = None
    error_details: Any = None


class _Request(msgspec.Struct, rename="camel"):
    request_id: str | None = None
    response_id: str | None = None
    message: _Message | None = None
    model_id: str | None = None
    response: Any = None
    result: _Result | None = None
    is_canceled: bool | None = None
    vote: int | None = None
    is_system_initiated: bool | None = None
    should_be_removed_on_send: Any = None


class _Part(msgspec.Struct, rename="camel"):
    """A member of the document, or a request of it."""

    session_id: str | None = None
    requests: _Request | None = None


class _Whole(msgspec.Struct, rename="camel"):
    session_id: str | None = None
    requests: list[_Request] | None = None


class _Change(msgspec.Struct):
    kind: int | None = None
    k: list[str | int] | None = None
    v: msgspec.Raw = msgspec.Raw(b"null")
    i: int | None = None


_part = msgspec.json.Decoder(_Part).decode
_change = msgspec.json.Decoder(_Change).decode
_whole = msgspec.json.Decoder(_Whole).decode
_requests = msgspec.json.Decoder(list[_Request]).decode
_result = msgspec.json.Decoder(_Result | None).decode
_vote = msgspec.json.Decoder(int | None).decode
_flag = msgspec.json.Decoder(bool | None).decode


def _recognise(document: bool, path: str, head: bytes) -> bool:
    """Recognise a chat document, or the log of one, with requests; the session's id may come last."""
    begins = bool((_document if document else _log)(head))
    named = b'"requestId"' in head or b'"responderUsername"' in head or b'"sessionId"' in head
    return begins and named and b'"requests"' in head


def hear_part(record: bytes) -> Iterable[Entry]:
    """The entries of one request of a document; the session's id follows them."""
    part = json_object(record, _part)
    if part.requests is not None:
        yield Session(agent=NAME)
        yield from _of_request(part.requests, part.requests.request_id or "")
    elif part.session_id:
        yield Session(id=part.session_id, agent=NAME)
    else:
        yield Dropped("facts about the session")


def hear_change(line: bytes) -> Iterable[Entry]:
    """The entries of one line of a log."""
    change = json_object(line, _change)
    at = change.k or []
    match change.kind, at:
        case 0, _:
            whole = json_object(bytes(change.v), _whole)
            yield Session(id=whole.session_id or "", agent=NAME)
            said = [one for n, request in enumerate(whole.requests or ()) for one in _at_once(request, _place(n))]
            if said:  # all in one record: they come out together, and are context of later ones
                yield Whole(Session(id=whole.session_id or "", agent=NAME), tuple(said), 0)
                yield Replaced(tuple(said))
        case 2, ["requests"]:
            if change.i is not None:
                yield Rewound(to=_place(change.i - 1) if change.i > 0 else BEGINNING)
            for request in json_object(bytes(change.v), _requests):
                yield from _of_request(request, request.request_id or "")
        case 1, ["requests", int(n), "result"]:
            yield from _of_result(json_object(bytes(change.v), _result) or _Result(), _Request(), _place(n))
        case 1, ["requests", int(), "vote"]:
            yield from _voted(json_object(bytes(change.v), _vote))
        case 1, ["requests", int(), "isCanceled"]:
            if json_object(bytes(change.v), _flag):
                yield Marked(Signal("interrupted", "isCanceled"))
        case ((1 | 2 | 3), _):
            yield Dropped("what the editor shows or keeps for itself")
        case kind, _:
            yield Unknown(f"kind: {kind}")


def _place(number: int) -> str:
    """Key of a request by its index, as later lines refer to it."""
    return f"request {number}"


def _at_once(request: _Request, name: str) -> list[Said]:
    """Entries of a request with its evidence; none if the user restored a state before it."""
    said, model = list[Said](), ""
    for entry in _of_request(request, name):
        if isinstance(entry, Session):
            model = entry.model
        elif isinstance(entry, Said):
            said.append(entry if entry.model else msgspec.structs.replace(entry, model=model))
        elif isinstance(entry, Marked) and said:
            said[-1] = msgspec.structs.replace(said[-1], signals=(*said[-1].signals, entry.signal))
        elif isinstance(entry, Rewound):
            return []
    return said


def _of_request(request: _Request, name: str) -> Iterator[Entry]:
    text = (request.message.text if request.message else None) or ""
    if request.model_id:
        yield Session(model=_model(request.model_id))
    files = _attachments(request.result) if text.strip() else ""
    yield turns.user(f"{text}\n\n{files}" if files else text, name, not request.is_system_initiated)
    if request.result is not None or request.response:
        yield from _of_result(request.result or _Result(), request, name)
    if request.is_canceled:
        yield Marked(Signal("interrupted", "isCanceled"))
    yield from _voted(request.vote)
    if request.should_be_removed_on_send not in (None, False):  # the user went back to before it
        yield Rewound(before=name)


def _of_result(result: _Result, request: _Request, name: str) -> Iterator[Entry]:
    """The rounds of an answer; those that were broken off are context."""
    metadata = result.metadata or _Metadata()
    results = metadata.tool_call_results if isinstance(metadata.tool_call_results, dict) else {}
    context = bool(request.is_canceled or result.error_details)
    model = _model(metadata.resolved_model or "")
    rounds = [one for one in metadata.tool_call_rounds or () if one.response or one.tool_calls]
    for one in rounds:
        calls = [turns.tool_call(call.id, call.name, call.arguments) for call in one.tool_calls or ()]
        said = turns.answer(one.response or "", _thought(one.thinking), calls, context)
        yield Said(said, id=name, model=model, response=request.response_id or "")
        for call in one.tool_calls or ():
            if call.id in results:
                yield turns.tool_result(_texts(results[call.id]), call.id, name)
    if not rounds and (shown := _shown(request.response)) is not None:
        text, whole = shown
        yield Said(turns.answer(text, context=context or not whole), id=name, model=model)


def _voted(vote: int | None) -> Iterator[Entry]:
    if vote is not None:
        yield Marked(Signal("rating", "1 (vote)" if vote == 1 else "-1 (vote)"))


def _model(name: str) -> str:
    """The served name of a model: without the provider that the editor puts in front (`customoai/apollo`)."""
    return name.rpartition("/")[2]


def _thought(thinking: Any) -> str:
    text = thinking.get("text") if isinstance(thinking, dict) else None
    texts = text if isinstance(text, list) else [text]
    return "".join(map(string, texts))


def _attachments(result: _Result | None) -> str:
    """The files attached to the prompt, in the form shown to the model."""
    rendered = result.metadata.rendered_user_message if result and result.metadata else None
    text = "".join(string(one.get("text")) for one in turns.blocks_of(rendered)) if isinstance(rendered, list) else ""
    end = text.rfind("</attachments>")
    begin = text.find("<attachments>")
    return text[begin : end + len("</attachments>")] if 0 <= begin < end else ""


def _shown(response: Any) -> tuple[str, bool] | None:
    """The displayed text, and true if nothing else is displayed; None: no text."""
    parts = turns.blocks_of(response) if isinstance(response, list) else []
    text = "".join(string(part.get("value")) for part in parts if part.get("kind") is None)
    silent = ("mcpServersStarting", "progressTaskSerialized", "undoStop")
    whole = all(part.get("kind") is None or part.get("kind") in silent for part in parts)
    return (text, whole) if text.strip() else None


def _texts(result: Any) -> str:
    """All texts of a rendered result tree, with a line break where a node asks for one."""
    found = list[str]()
    rest, steps = [result], 0
    while rest and steps < PARTS_MAX:
        node, steps = rest.pop(), steps + 1
        if isinstance(node, list):
            rest += reversed(node)
        elif isinstance(node, dict):
            text = node.get("text", node.get("value"))
            if isinstance(text, str):
                found.append(("\n" if node.get("lineBreakBefore") and found else "") + text)
            else:
                rest += [node[key] for key in ("children", "node", "value", "content") if key in node]
    return "".join(found)


READER = SessionReader(NAME, partial(_recognise, False), hear_change)
DOCUMENT = SessionReader(f"{NAME}-document", partial(_recognise, True), hear_part, in_documents("requests"))
