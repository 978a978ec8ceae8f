"""Sessions of Hermes Agent: `~/.hermes/state.db`, or `state.db` of a profile, tables `sessions` and `messages`.

After `website/docs/developer-guide/session-storage.md` of NousResearch/hermes-agent (schema 23 to 30, back to 2) and
docs/registry/hermes.md of vshulcz/deja-vu. Rows are added at the end; old ones become inactive when the user takes them
back (`active` 0) or when they are compacted (`compacted` 1, too). Compaction writes the messages that it keeps again,
with a summary, all in one go: with their own times, or with that of the summary. Removal says nothing bad: compacted
messages are learned like the rest.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from apollod.curation.conversation import Dropped, Entry, Replaced, Said, Session, Unknown
from apollod.curation.formats import turns
from apollod.curation.formats.database_reader import Queries, Row, Schema, capped, grouped, of_rows
from apollod.curation.formats.session_reader import Heard, attempt, json_or, string
from apollod.errors import RecordRefused

NAME = "hermes"
PARTS = "\x00json:"
"""Prefix of content that is a list of parts"""
SUMMARIES = ("[CONTEXT COMPACTION", "[CONTEXT SUMMARY]:")
TEXTS = ("content", "tool_calls", "reasoning", "reasoning_content")
SHORT = (
    "role", "tool_call_id", "effect_disposition", "timestamp", "finish_reason", "observed", "_compressed_summary",
    "active", "compacted",
)  # fmt: skip
FACTS = ("id", "source", "model", "model_config", "system_prompt", "parent_session_id", "started_at")
SILENT = frozenset({"session_meta"})


class Hermes:
    """Rows of `messages`, one row per message."""

    name = NAME
    keys_return = False

    def queries(self, schema: Schema) -> Queries | None:
        messages, sessions = schema.get("messages", frozenset()), schema.get("sessions", frozenset())
        required = {"id", "session_id", "role", "content", "tool_call_id", "tool_calls", "timestamp"}
        if not required <= messages or not {"id", "source"} <= sessions:
            return None
        texts = [column for column in TEXTS if column in messages]
        short = [column for column in SHORT if column in messages]
        facts = [column for column in FACTS if column in sessions]
        born = "s.started_at" if "started_at" in sessions else "NULL"
        return Queries(
            f"{grouped('messages', 'max(id)', born, 'sessions s ON s.id = g.session_id')} ORDER BY g.last",
            f"SELECT {capped(facts, 's')}, {int('compacted' in messages)} AS says_compacted FROM sessions s"
            " WHERE s.id = :session",
            *of_rows("messages", "id", texts, short),
        )

    def session(self, facts: Row) -> Session:
        return Session(
            id=string(facts.get("id")),
            agent=NAME,
            model=string(facts.get("model")),
            system=string(facts.get("system_prompt")),
            sidechain=facts.get("source") == "subagent" or "_delegate_from" in string(facts.get("model_config")),
        )

    def hear(self, facts: Row, records: Sequence[Sequence[Row]]) -> Sequence[Heard]:
        rows = [record[0] for record in records]
        again = _written_again(facts, rows)
        heard, copies = list[Heard](), list[Said]()
        for n, row in enumerate(rows):
            gone = row.get("active") == 0 and not row.get("compacted")
            if gone and not again[n]:
                heard.append(_inactive(row, bool(facts.get("says_compacted"))))
                continue
            one = attempt(_entries, row)
            if again[n] and not one.problem:
                copies += [entry for entry in one.entries if isinstance(entry, Said) and not gone]
                last = n + 1 == len(rows) or not again[n + 1]
                one = Heard((Replaced(tuple(copies)),) if last else ())
                copies = [] if last else copies
            heard.append(one)
        return heard


class _When(NamedTuple):
    """Times that tell copies from original messages."""

    last: float
    """time of the last message that may have a copy"""
    summaries: frozenset[float]


def _written_again(facts: Row, rows: Sequence[Row]) -> list[bool]:
    """True for each row that is a summary, or a copy beside one: of earlier rows, or of the parent session."""
    when = _When(
        _number(facts.get("started_at")) if facts.get("parent_session_id") else -1.0,
        frozenset(_number(row.get("timestamp")) for row in rows if _is_summary(row)),
    )
    again: list[bool] = []
    inside, old = when.last >= 0, when.last >= 0
    """inside: in a run of copies; old: the row before may have copies"""
    for row in rows:
        at, archived = _number(row.get("timestamp")), row.get("active") == 0 and bool(row.get("compacted"))
        earlier = at < when.last or (at == when.last and (inside or not archived))
        inside = _is_summary(row) or at in when.summaries or ((inside or old) and earlier)
        again.append(inside)
        old = archived
        if archived and not inside:
            when = when._replace(last=max(when.last, at))
    return again


def _is_summary(row: Row) -> bool:
    content = row.get("content")
    return row.get("_compressed_summary") == 1 or (isinstance(content, str) and content.startswith(SUMMARIES))


def _inactive(row: Row, says_compacted: bool) -> Heard:
    """The content of a row that left the conversation."""
    if not says_compacted:  # older versions do not say why it went
        return Heard((Dropped("rewound or compacted"),))
    return Heard(gone=row.get("role") == "assistant")


def _entries(row: Row) -> Iterable[Entry]:
    role, name, text = row.get("role"), str(row.get("key")), _content(row.get("content"))
    if role == "user":
        yield turns.user(text, name, not row.get("observed") and not _is_summary(row))
    elif role == "assistant":
        thoughts = string(row.get("reasoning_content")) or string(row.get("reasoning"))
        calls = _json(row.get("tool_calls"), "tool_calls")
        cut = row.get("finish_reason") == "length"  # its end would be learned, too
        yield Said(turns.answer(text, thoughts, calls or (), cut), id=name)
    elif role == "tool":
        result = json_or(text, None) if text.startswith("{") else None
        failed = isinstance(result, dict) and bool(
            result.get("exit_code") or result.get("error") or result.get("success") is False
        )
        yield turns.tool_result(text, row.get("tool_call_id"), name, failed, row.get("effect_disposition") == "denied")
    elif role == "system":
        yield Said(turns.form("system", text), id=name)
    elif role in SILENT:
        yield Dropped(str(role))
    else:
        yield Unknown(f"message: {string(role)}")


def _content(value: object) -> str:
    text = string(value)
    if not text.startswith(PARTS):
        return text
    return turns.text_of_blocks(_json(text[len(PARTS) :], "content"), "text")


def _json(value: object, name: str) -> Any:
    if value is None or value == "":
        return None
    try:
        return msgspec.json.decode(string(value))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise RecordRefused(f"{name} is no JSON: {error}", "nothing to do; it is kept as it is") from error


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


DATABASE = Hermes()
