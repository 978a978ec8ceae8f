"""Tasks of Cline and its forks (Roo Code, Kilo Code): `tasks/<id>/api_conversation_history.json` below the editor's
global storage, and `<id>.messages.json` of Cline's command line.

One document, rewritten each time: messages in Anthropic's shape. The extension writes into the user's messages: results
of tools (as blocks, or as `[read_file for 'x'] Result:` where a call has no id), the user's words in tags (`<task>`,
`<feedback>`, ...), the state of the editor (`<environment_details>`) and reminders. Cline names the model in each
answer (`modelInfo`), Roo Code in `<environment_details>`; older files do not name it. After `responses.ts` of
cline/cline and RooCodeInc/Roo-Code, and published task files.
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from apollod.curation.conversation import Dropped, Entry, Replaced, Said, Session, Signal, Unknown
from apollod.curation.formats import turns
from apollod.curation.formats.document import in_documents
from apollod.curation.formats.session_reader import SessionReader, json_object, json_or

NAME = "cline"
PERSON = ("task", "user_message", "feedback", "answer", "user_input")
"""Tags around the user's words"""
INTRODUCED = (
    "[TASK RESUMPTION]", "New instructions for task continuation", "New message to respond to", "The user ",
    "You seem to be having trouble",
)  # fmt: skip
"""Beginnings of the extension's texts that may quote the user"""
OF_THE_PROGRAM = (
    "# task_progress",
    "# TODO LIST",
    "[TASK RESUMPTION]",
    "(The user did not",
    "New instructions for task",
)
STATE = "environment_details"
CUT_OFF = re.compile(r"\n*\[Response interrupted by ([^\]]*)\]\s*$")
NO_ANSWER = "Failure: I did not provide a response."
REFUSED = ("The user denied this operation", '{"status":"denied"')
FAILED = ("The tool execution failed", '{"status":"error"', "Command failed with exit code")
_result_head = re.compile(r"\[[a-z_]{2,40}(?: for |\])").match
_model = re.compile(r"<model>([^<]{1,200})</model>").search


class _ModelInfo(msgspec.Struct, rename="camel"):
    model_id: str | None = None
    id: str | None = None


class _Record(msgspec.Struct, rename="camel"):
    """A message, and with the same fields a member of the command line's document."""

    role: str | None = None
    content: Any = None
    id: str | None = None
    model_info: _ModelInfo | None = None
    is_summary: bool | None = None
    is_truncation_marker: bool | None = None
    session_id: str | None = None
    system_prompt: str | None = msgspec.field(name="system_prompt", default=None)
    messages: "_Record | None" = None


_decode = msgspec.json.Decoder(_Record).decode
_begins = re.compile(rb'\s*\[\s*\{\s*"(?:role|ts|content|id)"').match
_spoken = re.compile(rb'"(?:<task>|\\n<task>|<environment_details>|<user_message>)').search
_of_the_cli = re.compile(rb'\s*\{\s*"version".{0,300}"sessionId".{0,300}"messages"\s*:\s*\[\s*\{\s*"', re.DOTALL).match


def recognise(path: str, head: bytes) -> bool:
    """True for an array of messages with tags of the extension or under its file name, and for the command line's
    document."""
    if path.endswith("api_conversation_history.json") and _begins(head):
        return True
    return bool((_begins(head) and _spoken(head)) or _of_the_cli(head))


def hear(record: bytes) -> Iterable[Entry]:
    """The entries of one message, or of one member of the document."""
    line = json_object(record, _decode)
    if line.session_id or line.system_prompt:
        yield Session(id=line.session_id or "", agent=NAME, system=line.system_prompt or "")
    message = line.messages or line
    if message.is_truncation_marker:
        yield Dropped("a note that messages were left out")
    elif message.is_summary:
        summary = turns.form("user", turns.text_of_blocks(message.content, "text") or "(summary)")
        yield Replaced((Said(summary),))
    elif message.role == "assistant":
        yield Session(agent=NAME)
        yield _answer(message)
    elif message.role == "user":
        yield from _asked(message)
    elif message.role is not None:
        yield Unknown(f"role: {message.role}")
    elif not line.session_id:
        yield Dropped("facts about the session")


def _answer(message: _Record) -> Said:
    blocks = turns.blocks_of(message.content)
    text = turns.text_of_blocks(blocks, "text")
    cut = CUT_OFF.search(text[-300:])
    if cut is not None:
        text = text[: len(text) - len(cut[0])]
    context = cut is not None or text.strip() == NO_ANSWER  # the extension, not the model, wrote its end
    said = turns.answer(text, turns.text_of_blocks(blocks, "thinking"), turns.calls_in(blocks), context)
    signals = (Signal("interrupted", cut[0].strip()),) if cut is not None and "user" in cut[1] else ()
    info = message.model_info or _ModelInfo()
    return Said(said, id=message.id or "", model=info.model_id or info.id or "", signals=signals)


def _asked(message: _Record) -> Iterable[Entry]:
    """Tool results first, then the user's words and attachments."""
    said, shown, entries = list[str](), list[str](), list[Entry]()
    model, automatic = "", False
    for block in turns.blocks_of(message.content):
        kind = block.get("type")
        if kind == "tool_result":
            text = turns.text_of_blocks(block.get("content"), "text")
            said += _words(text)
            entries.append(_result(text, block.get("tool_use_id"), bool(block.get("is_error")), message.id))
        elif kind == "text":
            text, state = _without_state(turns.text_of_blocks([block], "text"))
            found = _model(state)
            model = found[1] if found else model
            head, _, told = text.partition("] Result:") if _result_head(text) else ("", "", "")
            body = told.strip() if head else text
            words = _words(body)
            said += words
            if head and body and (not words or body.startswith(REFUSED)):
                entries.append(_result(body.partition("<feedback>")[0].strip(), None, False, message.id))
            elif not words and text and not text.startswith(OF_THE_PROGRAM):
                shown.append(text)
                automatic = automatic or bool(head) or text.startswith("[ERROR]")
        elif kind != "image":
            entries.append(Unknown(f"block: {kind}"))
    yield Session(agent=NAME, model=model)
    yield from entries
    if said or shown:
        prompt = bool(said) or not (automatic or any(isinstance(entry, Said) for entry in entries))
        yield Said(turns.form("user", "\n\n".join([*said, *shown])), id=message.id or "", prompt=prompt)
    elif not entries:
        yield Dropped("text of the program, not of a person")


def _without_state(text: str) -> tuple[str, str]:
    """A text without the state of the editor, and that state."""
    begin = text.find(f"<{STATE}>")
    end = text.rfind(f"</{STATE}>")
    if begin < 0 or end < begin:
        return text.strip(), ""
    return (text[:begin] + text[end + len(STATE) + 3 :]).strip(), text[begin:end]


def _words(text: str) -> list[str]:
    """The user's words quoted in a text of the extension, if it quotes any."""
    if text.startswith('{"status":'):
        feedback = json_or(text, dict[str, Any]()).get("feedback")
        return [feedback] if isinstance(feedback, str) and feedback else []
    for tag in PERSON:
        begin = text.find(f"<{tag}>") if text.startswith(INTRODUCED) else 0 if text.startswith(f"<{tag}") else -1
        end = text.rfind(f"</{tag}>")
        if 0 <= begin < end:
            return [text[text.find(">", begin) + 1 : end].strip()]
    return []


def _result(text: str, call: Any, failed: bool, record: str | None) -> Said:
    return turns.tool_result(text, call, record or "", failed or text.startswith(FAILED), text.startswith(REFUSED))


READER = SessionReader(NAME, recognise, hear, in_documents("messages"))
