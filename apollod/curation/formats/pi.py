"""Sessions of pi and of OpenClaw, whose agent writes the same lines.

pi: `~/.pi/agent/sessions/--<directory>--/<time>_<id>.jsonl`. OpenClaw up to 2026.7:
`~/.openclaw/agents/<agent>/sessions/<id>.jsonl`; later ones keep the same lines in SQLite (below). After pi's
`docs/session-format.md`, versions 1 (a list), 2 and 3 (a tree by `id` and `parentId`). The program's summaries of
compacted messages and of abandoned branches, and shell commands of the user, become messages of the user, with the
words of pi's `messages.ts`.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from apollod.curation.conversation import BEGINNING, Dropped, Entry, Link, Replaced, Said, Session, Unknown
from apollod.curation.formats import turns
from apollod.curation.formats.database_reader import Queries, Row, Schema, grouped, of_rows
from apollod.curation.formats.session_reader import Heard, SessionReader, attempt, json_object
from apollod.errors import RecordRefused

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
            text = turns.text_of_blocks(record.content, "text")
            return (Said(turns.form("user", text), id=record.id or "", after=_after(record)),)
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
            prompt = turns.user(turns.text_of_blocks(message.content, "text"), record, after=after)
            if isinstance(prompt, Said):
                yield prompt
            else:
                dropped = prompt.reason
        case "assistant" if message.stop_reason in ("error", "aborted"):
            dropped = f"an answer that ended with {message.stop_reason}"
        case "assistant" if message.model in OF_PROGRAM:
            dropped = "an answer that the program wrote"
        case "assistant":
            yield _answer(message, record, after)
        case "toolResult":
            text = turns.text_of_blocks(message.content, "text")
            yield turns.tool_result(text, message.tool_call_id, record, message.is_error, after=after)
        case "bashExecution" if message.exclude_from_context:
            dropped = "a shell command that the model was not shown"
        case "bashExecution":
            yield Said(turns.form("user", _executed(message)), id=record, after=after)
        case "custom" | "hookMessage":
            yield Said(turns.form("user", turns.text_of_blocks(message.content, "text")), id=record, after=after)
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
    cut = message.stop_reason == "length"  # its end would be learned, too
    said = turns.answer_of_blocks(message.content, cut, "toolCall", "arguments")
    return Said(said, id=record, after=after, model=message.model or "", response=message.response_id or "")


def _summary(words: str, summary: str | None, record: str, after: str | None) -> Said:
    return Said(turns.form("user", f"{words}{summary or ''}\n</summary>"), id=record, after=after)


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


# OpenClaw since 2026.8: `~/.openclaw/agents/<agent>/agent/openclaw-agent.sqlite`.
#
# `transcript_events` has the lines of earlier session files, one a row, by session and `seq`; `session_windows` has a
# row for each session. After openclaw's `session-accessor.sqlite-*.ts` and docs/registry/openclaw.md of
# vshulcz/deja-vu. A transcript may be rewritten as a whole, with `seq` from 0 again.

OPENCLAW = "openclaw"


class OpenClaw:
    """Lines of pi's log format, stored as rows."""

    name = OPENCLAW
    keys_return = True

    def queries(self, schema: Schema) -> Queries | None:
        if not {"session_id", "seq", "event_json"} <= schema.get("transcript_events", frozenset()):
            return None
        windows = schema.get("session_windows", frozenset())
        known = windows if "session_id" in windows else frozenset()
        dated = "created_at" in known
        joined = "session_windows s ON s.session_id = g.session_id" if dated else ""
        windowed = "SELECT session_id AS id, session_key FROM session_windows WHERE session_id = :session"
        return Queries(
            grouped("transcript_events", "max(seq)", "s.created_at" if dated else "NULL", joined),
            windowed if "session_key" in known else "SELECT :session AS id",
            *of_rows("transcript_events", "seq", ("event_json",)),
        )

    def session(self, facts: Row) -> Session:
        sidechain = ":subagent:" in str(facts.get("session_key") or "")
        return Session(id=str(facts.get("id") or ""), agent=OPENCLAW, sidechain=sidechain)

    def hear(self, facts: Row, records: Sequence[Sequence[Row]]) -> Sequence[Heard]:
        return [attempt(_of_row, rows[0]) for rows in records]


def _of_row(row: Row) -> Iterable[Entry]:
    line = row.get("event_json")
    if not isinstance(line, str):
        raise RecordRefused("event_json is no text", "nothing to do; it is kept as it is")
    for entry in hear(line.encode()):
        if isinstance(entry, Session):  # its id is that of the line, which a fork copies
            yield msgspec.structs.replace(entry, id="", agent="", begins=False)
        else:
            yield entry


DATABASE = OpenClaw()
