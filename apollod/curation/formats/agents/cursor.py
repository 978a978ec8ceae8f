"""Chats of Cursor, `globalStorage/state.vscdb` below its user directory, table `cursorDiskKV`; and transcripts of its
agent, `~/.cursor/projects/<directory>/agent-transcripts/**/*.jsonl`.

A chat is `composerData:<id>`, whose `fullConversationHeadersOnly` lists its messages in order; a message is
`bubbleId:<id>:<bubble>`. One answer of the model is several bubbles: thoughts, texts and calls, each call with its
result. After public readers of these databases (getagentseal/codeburn, vshulcz/deja-vu).
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from apollod.curation.conversation import Dropped, Entry, Marked, Said, Session, Signal, Unknown
from apollod.curation.formats import turns
from apollod.curation.formats.database_reader import Queries, Row, Schema, capped, size_of
from apollod.curation.formats.session_reader import Heard, SessionReader, attempt, json_object, json_or, string

NAME = "cursor"
UNFINISHED = frozenset({"loading", "running", "inProgress", "pending", "streaming"})
REFUSED = frozenset({"rejected", "cancelled", "canceled"})
CHATS = (
    "SELECT key, iif(json_valid(CAST(value AS TEXT)), CAST(value AS TEXT), '{}') AS v FROM cursorDiskKV"
    " WHERE key >= 'composerData:' AND key < 'composerData;'"
)
HEADERS = "'$.fullConversationHeadersOnly'"
BUBBLES = (
    f"({CHATS} AND key = 'composerData:' || :session) c, json_each(c.v, {HEADERS}) h LEFT JOIN cursorDiskKV b"
    " ON b.key = 'bubbleId:' || :session || ':' || json_extract(c.v, h.fullkey || '.bubbleId')"
)


class _Model(msgspec.Struct, rename="camel"):
    model_name: str | None = None


class _Thinking(msgspec.Struct):
    text: str | None = None


class _Tool(msgspec.Struct, rename="camel"):
    tool_call_id: str | None = None
    name: str | None = None
    raw_args: Any = None
    params: Any = None
    result: Any = None
    status: str | None = None
    user_decision: str | None = None


class _Bubble(msgspec.Struct, rename="camel"):
    type: int | None = None
    bubble_id: str | None = None
    text: str | None = None
    raw_text: str | None = None
    thinking: _Thinking | None = None
    model_info: _Model | None = None
    tool_former_data: _Tool | None = None


_decode = msgspec.json.Decoder(_Bubble).decode


class Cursor:
    """Bubbles of a chat, in the order of its headers."""

    name = NAME
    keys_return = True

    def queries(self, schema: Schema) -> Queries | None:
        if not {"key", "value"} <= schema.get("cursorDiskKV", frozenset()):
            return None
        size = size_of(["value"], "b")
        return Queries(
            sessions=(
                "SELECT substr(key, 14), json_extract(v, '$.createdAt'),"
                f" json_array_length(v, {HEADERS}) || ' ' || coalesce(json_extract(v, '$.lastUpdatedAt'), '')"
                f" || ' ' || coalesce(json_extract(v, '$.status'), '') FROM ({CHATS})"
                f" WHERE json_array_length(v, {HEADERS}) > 0 ORDER BY 2"
            ),
            facts=(
                "SELECT :session AS id, json_extract(v, '$.modelConfig.modelName') AS model,"
                f" json_extract(v, '$.status') AS status FROM ({CHATS} AND key = 'composerData:' || :session)"
            ),
            records=(
                f"SELECT h.key AS key, {size} AS size, {capped(['value'], 'b')} FROM {BUBBLES}"
                " WHERE :after IS NULL OR h.key > :after ORDER BY h.key"
            ),
            before=f"SELECT h.key, {size} FROM {BUBBLES} WHERE h.key <= :until ORDER BY h.key DESC",
            counted=f"SELECT count(*) FROM {BUBBLES} WHERE h.key <= :until",
        )

    def session(self, facts: Row) -> Session:
        return Session(id=str(facts.get("id") or ""), agent=NAME, model=string(facts.get("model")))

    def hear(self, facts: Row, records: Sequence[Sequence[Row]]) -> Sequence[Heard]:
        heard = [attempt(_entries, rows[0]) for rows in records]
        last = json_or(str(records[-1][0].get("value")), _Bubble(), _Bubble).tool_former_data if records else None
        writing = facts.get("status") == "generating" or (last is not None and last.status in UNFINISHED)
        return heard[:-1] if writing else heard


def _entries(row: Row) -> Iterable[Entry]:
    value = row.get("value")
    if not isinstance(value, str):
        yield Dropped("a message that is not there, or too long")
        return
    bubble = json_object(value.encode(), _decode)
    name, text = bubble.bubble_id or "", bubble.text or bubble.raw_text or ""
    model = bubble.model_info.model_name if bubble.model_info else None
    if model and model != "default":
        yield Session(model=model)
    if bubble.type == 1:
        yield turns.user(text, name)
    elif bubble.type == 2:
        yield from _answer(bubble, name, text)
    else:
        yield Unknown(f"bubble: {bubble.type}")


def _answer(bubble: _Bubble, name: str, text: str) -> Iterable[Entry]:
    """A part of an answer; a call with its result."""
    tool = bubble.tool_former_data
    calls = []
    if tool is not None and tool.name:
        calls = [turns.tool_call(tool.tool_call_id, tool.name, _arguments(tool.raw_args or tool.params))]
    thought = bubble.thinking.text if bubble.thinking else None
    if not (text.strip() or thought or calls):
        yield Dropped("a message without text")
        return
    yield Said(turns.answer(text, thought, calls), id=name, continues=True)
    if tool is None or not calls:
        return
    text = "" if tool.result is None else turns.json_text(tool.result)
    refused = tool.user_decision in REFUSED or tool.status in REFUSED
    signals = turns.trouble(text or (str(tool.status) if refused else ""), tool.status == "error", refused)
    yield Said(turns.form("tool", text, tool_call_id=tool.tool_call_id), id=name, signals=signals)


def _arguments(value: Any) -> Any:
    """Arguments as an object; text that does not parse goes under `input`."""
    if isinstance(value, str):
        value = json_or(value, value) if value else {}
    return value if isinstance(value, dict) else {"input": value} if value is not None else {}


DATABASE = Cursor()


# A line of a transcript is a message in Anthropic's shape without results of calls. It does not name the model: set
# `models = ["*"]` for a tree in which only the served model answers. The user's prompt stands in `<user_query>`.

TRANSCRIPT = "cursor-transcript"
QUERY = ("<user_query>", "</user_query>")
_begins = re.compile(rb'\s*\{\s*"role":\s*"(?:user|assistant)",\s*"message":\s*\{\s*"content":\s*[\["]').match


class _TranscriptMessage(msgspec.Struct):
    content: Any = None


class _TranscriptLine(msgspec.Struct):
    role: str | None = None
    type: str | None = None
    status: str | None = None
    message: _TranscriptMessage | None = None


_line = msgspec.json.Decoder(_TranscriptLine).decode


def recognise(path: str, head: bytes) -> bool:
    """True if the first line begins with a role and a message with content."""
    return bool(_begins(head))


def hear(line: bytes) -> Iterable[Entry]:
    """The entries of one line."""
    record = json_object(line, _line)
    blocks = turns.blocks_of(record.message.content if record.message else None)
    text = turns.text_of_blocks(blocks, "text")
    match record.role:
        case "user":
            begin, end = text.find(QUERY[0]), text.rfind(QUERY[1])
            yield Session(agent=TRANSCRIPT)
            yield turns.user(text[begin + len(QUERY[0]) : end].strip() if 0 <= begin < end else text)
        case "assistant":
            yield Said(turns.answer(text, calls=turns.calls_in(blocks)))
        case None if record.type == "turn_ended":
            if record.status in ("error", "aborted", "cancelled"):
                yield Marked(Signal("interrupted", f"turn_ended: {record.status}"))
        case kind:
            yield Unknown(f"role: {kind or record.type}")


READER = SessionReader(TRANSCRIPT, recognise, hear)
