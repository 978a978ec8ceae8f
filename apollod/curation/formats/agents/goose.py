"""Sessions of Goose before 1.10: `~/.local/share/goose/sessions/<session>.jsonl`.

The first line has facts, each other one a message. A message is the same in the database of later versions
(below). After `message.rs` of block/goose and published samples: a call is a `toolRequest` of
the assistant, its result a `toolResponse` in a message of the user.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from apollod.curation.conversation import Entry, Said, Session, Unknown
from apollod.curation.formats import turns
from apollod.curation.formats.database_reader import Queries, Row, Schema, capped, grouped, of_rows
from apollod.curation.formats.session_reader import Heard, SessionReader, attempt, json_object, json_or
from apollod.errors import RecordRefused

NAME = "goose"
DECLINED = "The user has declined to run this tool"
SILENT = frozenset({"image", "redactedThinking", "systemNotification", "toolConfirmationRequest", "actionRequired",
                    "frontendToolRequest", "contextLengthExceeded", "summarizationRequested"})  # fmt: skip
"""Types of content without text of the conversation"""


class ModelConfig(msgspec.Struct):
    """The model of a session."""

    model_name: str | None = None


class _Inference(msgspec.Struct, rename="camel"):
    resolved_model: str | None = None
    requested_model: str | None = None


class Metadata(msgspec.Struct, rename="camel"):
    """Metadata of a message."""

    user_visible: bool | None = None
    inference: _Inference | None = None


class _Line(msgspec.Struct):
    id: str | int | None = None
    role: str | None = None
    content: Any = None
    metadata: Metadata | None = None
    working_dir: str | None = None
    model_config: ModelConfig | None = None


_decode = msgspec.json.Decoder(_Line).decode


def recognise(path: str, head: bytes) -> bool:
    """True if the first line has a directory and a description or message count, and messages follow."""
    first, _, rest = head.partition(b"\n")
    facts = b'"working_dir"' in first and (b'"description"' in first or b'"message_count"' in first)
    return facts and b'"role"' not in first and (not rest.strip() or b'"created"' in rest)


def hear(line: bytes) -> Iterable[Entry]:
    """The entries of one line."""
    record = json_object(line, _decode)
    if record.role is not None:
        name = str(record.id) if record.id is not None else ""
        yield from entries_of(record.role, record.content, record.metadata or Metadata(), name)
    else:
        model = record.model_config.model_name if record.model_config else None
        yield Session(id=str(record.id or ""), agent=NAME, model=model or "")


def entries_of(role: str, content: Any, metadata: Metadata, name: str) -> Iterable[Entry]:
    """Entries of a message. A message hidden from the user was written by the program and is context."""
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    hidden = metadata.user_visible is False
    if role == "assistant":
        yield _answer(blocks, metadata, name, hidden)
    elif role != "user":
        yield Unknown(f"role: {role}")
    results = [block for block in blocks if block.get("type") == "toolResponse"]
    for block in results:
        yield _result(block, name)
    if role == "user":
        entry = turns.user(turns.text_of_blocks(blocks, "text"), name, not (hidden or results))
        if isinstance(entry, Said) or not results:
            yield entry
    known = SILENT | {"text", "thinking", "reasoning", "toolRequest", "toolResponse"}
    kinds = (str(block.get("type")) for block in blocks)  # the type may be any JSON value
    yield from (Unknown(f"content: {kind}") for kind in kinds if kind not in known)


def _answer(blocks: list[dict[str, Any]], metadata: Metadata, name: str, hidden: bool) -> Said:
    calls = []
    for block in blocks:
        value = _value(block.get("toolCall")) if block.get("type") == "toolRequest" else None
        if isinstance(value, dict):  # else the call was broken, and its result says so
            calls.append(turns.tool_call(block.get("id"), value.get("name"), value.get("arguments")))
    thought = turns.text_of_blocks(blocks, "thinking") or turns.text_of_blocks(blocks, "reasoning")
    said = turns.answer(turns.text_of_blocks(blocks, "text"), thought, calls, hidden)
    inference = metadata.inference or _Inference()
    model = inference.resolved_model or inference.requested_model or ""
    return Said(said, id=name, part_of=name, model=model)


def _value(outcome: Any) -> Any:
    """Unwrap the value of a Rust `Result`, in either of its serialisations."""
    return outcome.get("value", outcome.get("Ok")) if isinstance(outcome, dict) else None


def _result(block: dict[str, Any], name: str) -> Said:
    outcome = block.get("toolResult")
    value = _value(outcome)
    failed = isinstance(value, dict) and bool(value.get("isError"))
    content = value.get("content") if isinstance(value, dict) else value
    text = turns.text_of_blocks(content, "text")
    if isinstance(outcome, dict) and value is None:
        failed, text = True, turns.json_text(outcome.get("error", outcome.get("Err", "")))
    return turns.tool_result(text, block.get("id"), name, failed, text.startswith(DECLINED))


READER = SessionReader(NAME, recognise, hear)


# Sessions of Goose since 1.10: `~/.local/share/goose/sessions/sessions.db`, tables `sessions` and `messages`.
#
# A message is a row with its content as JSON, as `entries_of` reads it. A compaction rewrites all messages
# of the session as new rows; their examples are recognised as already learned. After `session_manager.rs` of
# block/goose.

LONG, SHORT = ("content_json", "metadata_json"), ("role", "message_id")
FACTS = ("session_type", "model_config_json")
_content = msgspec.json.Decoder(list[Any]).decode
_metadata = msgspec.json.Decoder(Metadata).decode


class Goose:
    """Messages in rows."""

    name = f"{NAME}-db"
    keys_return = False

    def queries(self, schema: Schema) -> Queries | None:
        sessions, messages = schema.get("sessions", frozenset()), schema.get("messages", frozenset())
        if "id" not in sessions or not {"id", "session_id", "role", "content_json"} <= messages:
            return None
        long, short = [c for c in LONG if c in messages], [c for c in SHORT if c in messages]
        facts = [column for column in FACTS if column in sessions]
        born = "s.created_at" if "created_at" in sessions else "NULL"
        return Queries(
            f"{grouped('messages', 'max(id)', born, 'sessions s ON s.id = g.session_id')} ORDER BY g.last",
            f"SELECT s.id AS id{', ' if facts else ''}{capped(facts, 's')} FROM sessions s WHERE s.id = :session",
            *of_rows("messages", "id", long, short),
        )

    def session(self, facts: Row) -> Session:
        model = json_or(str(facts.get("model_config_json") or "{}"), ModelConfig(), ModelConfig).model_name
        sidechain = facts.get("session_type") == "sub_agent"
        return Session(id=str(facts.get("id") or ""), agent=NAME, model=model or "", sidechain=sidechain)

    def hear(self, facts: Row, records: Sequence[Sequence[Row]]) -> Sequence[Heard]:
        return [attempt(_entries, rows[0]) for rows in records]


def _entries(row: Row) -> Iterable[Entry]:
    content, metadata = row.get("content_json"), row.get("metadata_json")
    if not isinstance(content, str):
        raise RecordRefused("content_json is no text", "nothing to do; it is kept as it is")
    beside = json_object(metadata.encode(), _metadata) if isinstance(metadata, str) and metadata else Metadata()
    name = str(row.get("message_id") or row.get("key"))
    return entries_of(str(row.get("role")), json_object(content.encode(), _content), beside, name)


DATABASE = Goose()
