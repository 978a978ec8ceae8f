"""Ratings of Open WebUI: the table `feedback` of `webui.db`. A row is a rating with a snapshot of the chat.

After `backend/open_webui/models/feedbacks.py` of open-webui. Each rating is a session of one record, whose key is the
time of its last change, so that a changed rating is read again.
"""

from collections.abc import Iterable, Sequence

import msgspec

from apollod.curation.conversation import Entry, Session
from apollod.curation.databases.database_reader import Heard, Queries, Row, Schema, attempt, capped, size_of
from apollod.curation.formats import open_webui
from apollod.errors import RecordRefused

DOCUMENTS = ("data", "meta", "snapshot")


class WebuiFeedback:
    """Rows in the form of Open WebUI's export."""

    name = "open-webui-db"
    keys_return = False

    def queries(self, schema: Schema) -> Queries | None:
        columns = schema.get("feedback", frozenset())
        if not {"id", "type", "updated_at", *DOCUMENTS} <= columns:
            return None
        born = "created_at" if "created_at" in columns else "NULL"
        size = size_of(DOCUMENTS, "f")
        return Queries(
            sessions=f"SELECT id, {born}, CAST(updated_at AS TEXT) FROM feedback ORDER BY updated_at, id",
            facts="",
            records=(
                f"SELECT f.updated_at AS key, f.id AS id, f.type AS type, {size} AS size, {capped(DOCUMENTS, 'f')}"
                " FROM feedback f WHERE f.id = :session AND (:after IS NULL OR f.updated_at > :after)"
            ),
            before=f"SELECT f.updated_at, {size} FROM feedback f WHERE f.id = :session AND f.updated_at <= :until",
            counted="SELECT count(*) FROM feedback WHERE id = :session AND updated_at <= :until",
        )

    def session(self, facts: Row) -> Session:
        return Session(agent=open_webui.NAME)

    def hear(self, facts: Row, records: Sequence[Sequence[Row]]) -> Sequence[Heard]:
        return [attempt(_entries, rows) for rows in records]


def _entries(rows: Sequence[Row]) -> Iterable[Entry]:
    (row,) = rows
    return open_webui.hear(_as_exported(row))


def _as_exported(row: Row) -> bytes:
    """The row as an element of the export. JSON columns are inserted as they stand, so that they are parsed once."""
    members = [f'"id":{_quoted(row.get("id"))}', f'"type":{_quoted(row.get("type"))}']
    for name in DOCUMENTS:
        text = row.get(name)
        if text is None:
            text = "null"
        if not isinstance(text, str):
            raise RecordRefused(f"{name} is no JSON text", "nothing to do; it is kept as it is")
        members.append(f'"{name}":{text}')
    return ("{" + ",".join(members) + "}").encode()


def _quoted(value: object) -> str:
    return msgspec.json.encode(value if isinstance(value, str) else None).decode()


READER = WebuiFeedback()
