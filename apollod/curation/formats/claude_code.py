"""Sessions of Claude Code: `~/.claude/projects/<directory>/<session>.jsonl`, subagents in files of their own.

The format is internal to that program and drifts; this reads versions 2.0 to 2.1 (JSON schema of 2.1.1 by
oneryalcin/agent-schemas, notes on later versions by skillsynchq/txcript). A line holds one block of an answer; lines of
one answer share `message.id` and come one after another, sometimes again with more in them. Results of tools are user
records. Records follow each other by `parentUuid`, so a prompt that was edited begins a branch. The program's additions
to a prompt (files, notes, expansions of commands) are user records with `isMeta`, and attachments.

A message typed while the agent ran is one, too (`queued_command`). Files that the user named with `@` are context. Text
from hooks and memory files is in `<system-reminder>` in the model's input, and is stripped like that of any program.
The other kinds, such as lists of skills, are left out.
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from apollod.curation.conversation import Dropped, Entry, Executed, Link, Queued, Said, Session, Signal, Unknown
from apollod.curation.formats import turns
from apollod.curation.formats.session_reader import SessionReader, json_object, string
from apollod.curation.typed_ahead import typed

NAME = "claude-code"
INTERRUPTED = ("[Request interrupted by user", "[Request cancelled by user")
REFUSED = "The user doesn't want to proceed with this tool use"
COMMANDS = ("<command-name>", "<command-message>")
OF_PROGRAM = ("<local-command-", "Caveat: ", "[Image: ")
"""Texts of the program about commands that it ran itself, and about omitted images"""
EXECUTED = ("<local-command-stdout>", "<local-command-stderr>")
CONTEXT = ("<system-reminder>", "<task-notification>", "<bash-input>", "<bash-stdout>", "<bash-stderr>")
"""Texts in user turns that the program wrote, not the user"""
NOT_THE_AGENT = ("acompact", "aprompt_suggestion", "asession_memory")
"""Id prefixes of subagents that write texts for the program itself: summaries, guesses at the next prompt"""
SILENT = frozenset(
    {
        "summary", "file-history-snapshot", "ai-title", "custom-title", "last-prompt", "mode", "pr-link", "progress",
        "permission-mode", "tag", "agent-name", "agent-setting", "agent-color", "worktree-state", "bridge-session",
        "content-replacement",
    }
)  # fmt: skip
"""Record types that hold no text of the conversation."""
_MESSAGE = re.compile(rb'"message":\s?\{(?:"[a-z_]+":\s?(?:"[^"\\]*"|null),\s?){0,5}"role":\s?"(?:user|assistant)"')
"""finds messages without `parentUuid`, written by programs that convert or imitate sessions"""

HOOKS_THAT_TELL = ("SessionStart", "UserPromptSubmit")
"""Events of hooks whose output the model sees"""
NAME_MAX = 40  # characters of an unknown kind's name, which comes from the log


class _Message(msgspec.Struct, gc=False):
    role: str = ""
    content: Any = None
    id: str = ""
    model: str = ""
    stop_reason: str | None = None


class _Line(msgspec.Struct, rename="camel", gc=False):
    """The fields of a record in use."""

    type: str = ""
    uuid: str = ""
    parent_uuid: str | None = None
    logical_parent_uuid: str | None = None
    session_id: str = ""
    agent_id: str = ""
    version: str = ""
    is_sidechain: bool = False
    is_meta: bool = False
    is_compact_summary: bool = False
    is_api_error_message: bool = False
    subtype: str = ""
    operation: str = ""
    reason: str | None = None
    content: Any = None
    attachment: Any = None
    message: _Message | None = None


_decode = msgspec.json.Decoder(_Line, strict=False).decode


def recognise(path: str, head: bytes) -> bool:
    """True if an early record has a session id, and a parent or a message with blocks or text. Qwen Code's records
    match, too, so its reader is asked first."""
    for line in head.split(b"\n")[:20]:
        if b'"sessionId"' in line and (b'"parentUuid"' in line or _MESSAGE.search(line)):
            return True
    return False


def hear(line: bytes) -> Iterable[Entry]:
    """The entries of one record."""
    record = json_object(line, _decode)
    if record.is_sidechain and not record.agent_id:  # only in version 1; later each has its own file
        yield Dropped("a subagent within the log of its session")
        return
    if record.session_id or record.agent_id:
        yield Session(
            id=record.agent_id or record.session_id, agent=NAME, version=record.version, sidechain=record.is_sidechain
        )
    message = record.message
    if record.agent_id.startswith(NOT_THE_AGENT):
        yield Dropped("an agent that the program asks for summaries and the like")
    elif message is not None and record.type == "assistant":
        yield from _answer(record, message)
    elif message is not None and record.type == "user":
        yield from _user(record, message)
    elif record.type == "queue-operation":
        yield from _queue(record)
    elif record.type == "attachment":
        yield from _attached(record.attachment if isinstance(record.attachment, dict) else {}, record)
    else:
        yield from _link(record)
        if record.type == "system":
            yield Dropped(f"system: {record.subtype or 'other'}")
        elif record.type in SILENT:
            yield Dropped(record.type)
        else:
            yield Unknown(record.type)


def _queue(record: _Line) -> Iterable[Entry]:
    taken_out = record.operation == "remove" and record.reason not in (None, "", "absorbed_mid_turn")
    text = turns.text_of_blocks(record.content, "text")
    yield from _link(record)
    yield Queued("popAll" if taken_out else record.operation, text)
    yield Dropped(f"queue-operation: {record.operation[:20] or 'other'}")


def _link(record: _Line) -> Iterable[Entry]:
    if record.uuid:
        yield Link(record.uuid, record.parent_uuid or record.logical_parent_uuid or "")


def _answer(record: _Line, message: _Message) -> Iterable[Entry]:
    if record.is_api_error_message or message.model == "<synthetic>":
        yield Link(record.uuid, record.parent_uuid or "")
        yield Dropped("an error of the API, or text that no model wrote")
        return
    cut = message.stop_reason == "max_tokens"  # its end would be learned, too
    said = turns.answer_of_blocks(message.content, cut)
    yield Said(
        said, id=record.uuid, after=record.parent_uuid, part_of=message.id, model=message.model, response=message.id
    )


def _user(record: _Line, message: _Message) -> Iterable[Entry]:
    blocks = turns.blocks_of(message.content)
    results = [block for block in blocks if block.get("type") == "tool_result"]
    after = record.parent_uuid
    for one in results:
        content = one.get("content")
        text = (turns.text_of_blocks(content, "text") if isinstance(content, list) else content) or ""
        refused = isinstance(text, str) and text.startswith(REFUSED)
        yield turns.tool_result(text, one.get("tool_use_id"), record.uuid, bool(one.get("is_error")), refused, after)
        after = None
    yield from _turn(record, turns.text_of_blocks(blocks, "text"), after, bool(results))


def _turn(record: _Line, text: str, after: str | None, of_results: bool) -> Iterable[Entry]:
    """Entries for the text of a user record: a prompt, a command, or text of the program under the user's role."""
    start = text.lstrip()[:40]
    if record.is_compact_summary:
        yield from _link(record)
        yield Dropped("a summary of what was compacted")
    elif start.startswith(OF_PROGRAM):
        if start.startswith(EXECUTED) and after:
            yield Executed(after)
        yield from _link(record)
        yield Dropped("text of the program, not of a person")
    elif text.startswith(INTERRUPTED):
        yield Said(turns.form("user", text), id=record.uuid, after=after, signals=(Signal("interrupted", text),))
    elif not text.strip():
        if not of_results:
            yield from _link(record)
            yield Dropped("a prompt without text")
    elif start.startswith(COMMANDS):
        yield Said(turns.form("user", text), id=record.uuid, after=after, prompt=True, command=True)
    else:
        asked = not (of_results or record.is_meta or start.startswith(CONTEXT))
        yield Said(turns.form("user", text), id=record.uuid, after=after, prompt=asked)


def _attached(attachment: dict[str, Any], record: _Line) -> Iterable[Entry]:
    """The entries of an attachment."""
    kind, text = string(attachment.get("type")), _shown(attachment)
    if not text.strip():
        yield from _link(record)
        yield Dropped(f"attachment: {kind[:NAME_MAX]}")
    elif kind == "queued_command" and _is_of_a_person(attachment):
        yield typed(text, record.uuid, record.parent_uuid)
    else:
        yield Said(turns.form("user", text), id=record.uuid, after=record.parent_uuid)


def _is_of_a_person(attachment: dict[str, Any]) -> bool:
    origin = attachment.get("origin")
    sender = origin.get("kind", "human") if isinstance(origin, dict) else "human"
    mode = attachment.get("commandMode", "prompt")
    return sender == "human" and mode == "prompt" and not attachment.get("isMeta")


def _shown(attachment: dict[str, Any]) -> str:
    """The text of an attachment that the model sees, in the program's own wording; empty if it sees none."""
    content = attachment.get("content")
    inner = content if isinstance(content, dict) else {}
    name, path, text = (string(attachment.get(key)) for key in ("filename", "path", "content"))
    hook, event = (string(attachment.get(key)) for key in ("hookName", "hookEvent"))
    match attachment.get("type"):
        case "queued_command":
            return turns.text_of_blocks(attachment.get("prompt"), "text")
        case "file" if name:
            file = inner.get("file")
            read = file.get("content") if isinstance(file, dict) else content
            return _read("Read", {"file_path": name}, read) if isinstance(read, str) else ""
        case "directory" if path and text:
            return _read("Bash", {"command": f"ls {path}"}, text)
        case "selected_lines_in_ide" if text:
            lines = f"{attachment.get('lineStart')} to {attachment.get('lineEnd')}"
            return f"The user selected the lines {lines} from {name}:\n{text}"
        case "edited_text_file" if snippet := string(attachment.get("snippet")):
            return f"Note: {name} was modified by the user or by a linter:\n{snippet}"
        case "nested_memory" if (memory := string(inner.get("content")) or text).strip():
            return _reminder(f"Contents of {path}:\n\n{memory}")
        case "hook_success" if (event or hook.partition(":")[0]) not in HOOKS_THAT_TELL:
            return ""
        case "hook_additional_context" | "hook_success":
            texts = content if isinstance(content, list) else [content]
            told = "\n".join(one for one in texts if isinstance(one, str))
            return _reminder(f"{hook or event} hook additional context: {told}") if told.strip() else ""
        case "hook_blocking_error":
            error = attachment.get("blockingError")
            why = string(error.get("blockingError") if isinstance(error, dict) else error)
            return f"{hook or 'a'} hook blocking error: {why}" if why.strip() else ""
        case "critical_system_reminder" if text.strip():
            return _reminder(text)
    return ""


def _read(tool: str, given: dict[str, str], text: str) -> str:
    return f"Called the {tool} tool with the following input: {turns.json_text(given)}\n\nResult of it:\n{text}"


def _reminder(text: str) -> str:
    return f"<system-reminder>\n{text}\n</system-reminder>"


READER = SessionReader(NAME, recognise, hear)
