"""Sessions of Goose since 1.10: `~/.local/share/goose/sessions/sessions.db`, tables `sessions` and `messages`.

A message is a row with its content as JSON, as `formats/agents/goose.py` reads it. A compaction rewrites all messages
of the session as new rows; their examples are recognised as already learned. After `session_manager.rs` of block/goose.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from apollod.curation.conversation import Entry, Session
from apollod.curation.databases.database_reader import Heard, Queries, Row, Schema, attempt, capped, listed, size_of
from apollod.curation.formats.agents.goose import NAME, Metadata, ModelConfig, entries_of
from apollod.curation.formats.blocks import json_object
from apollod.errors import RecordRefused

LONG, SHORT = ("content_json", "metadata_json"), ("role", "message_id")
FACTS = ("session_type", "model_config_json")
_content = msgspec.json.Decoder(list[Any]).decode
_metadata = msgspec.json.Decoder(Metadata).decode
_model = msgspec.json.Decoder(ModelConfig).decode


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
        size = size_of(long, "m")
        return Queries(
            sessions=(
                f"SELECT g.session_id, {'s.created_at' if 'created_at' in sessions else 'NULL'}, g.n || ' ' || g.last"
                " FROM (SELECT session_id, count(*) AS n, max(id) AS last FROM messages GROUP BY session_id) g"
                " LEFT JOIN sessions s ON s.id = g.session_id ORDER BY g.last"
            ),
            facts=f"SELECT s.id AS id{', ' if facts else ''}{capped(facts, 's')} FROM sessions s WHERE s.id = :session",
            records=(
                f"SELECT m.id AS key, {size} AS size, {listed(short, 'm')}, {capped(long, 'm')} FROM messages m"
                " WHERE m.session_id = :session AND (:after IS NULL OR m.id > :after) ORDER BY m.id"
            ),
            before=(
                f"SELECT m.id, {size} FROM messages m WHERE m.session_id = :session AND m.id <= :until"
                " ORDER BY m.id DESC"
            ),
            counted="SELECT count(*) FROM messages WHERE session_id = :session AND id <= :until",
        )

    def session(self, facts: Row) -> Session:
        try:
            model = _model(str(facts.get("model_config_json") or "{}")).model_name
        except (msgspec.MsgspecError, RecursionError):
            model = None
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


READER = Goose()
