"""Ratings of Open WebUI: the export of all feedback (one JSON array), or of chats with their annotations.

After `backend/open_webui/models/feedbacks.py` of open-webui and exports of version 0.6. A rating holds a snapshot of
the chat. Answers rated good are learned, with the branch that led to them; a bad rating is evidence; unrated answers
are only context, or answers that one to the same prompt was preferred to.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from apollod.curation.conversation import Dropped, Entry, Opinion, Said, Session, Signal, Unknown, Whole
from apollod.curation.formats import turns
from apollod.curation.formats.database_reader import Queries, Row, Schema, of_rows
from apollod.curation.formats.document import fold_document
from apollod.curation.formats.session_reader import Heard, SessionReader, attempt, json_object, string
from apollod.errors import RecordRefused

NAME = "open-webui"
THOUGHTS = re.compile(r'<details type="reasoning".*?</details>\s*', re.DOTALL)
DEPTH_MAX = 1000  # of a branch; parents in a broken export may form a cycle


class _Message(msgspec.Struct, rename="camel"):
    id: str | None = None
    parent_id: str | None = None
    role: str | None = None
    content: Any = None
    model: str | None = None
    annotation: Any = None


class _History(msgspec.Struct):
    messages: Any = None


class _Chat(msgspec.Struct):
    id: str | None = None
    chat: "_Chat | None" = None
    history: _History | None = None


class _Rating(msgspec.Struct):
    rating: int | float | str | None = None
    model_id: str | None = None
    reason: str | None = None
    comment: str | None = None


class _Meta(msgspec.Struct):
    chat_id: str | None = None
    message_id: str | None = None


class _Snapshot(msgspec.Struct):
    chat: _Chat | None = None
    history: _History | None = None


class _Feedback(msgspec.Struct):
    id: str | None = None
    type: str | None = None
    data: _Rating | None = None
    meta: _Meta | None = None
    snapshot: _Snapshot | None = None
    chat: _Chat | None = None


_decode = msgspec.json.Decoder(_Feedback).decode


def recognise(path: str, head: bytes) -> bool:
    """True for an array of ratings with their chats, or of chats."""
    if not head.lstrip().startswith(b"["):
        return False
    rated = b'"snapshot"' in head and b'"rating"' in head
    return rated or (b'"history"' in head and b'"childrenIds"' in head)


def hear(record: bytes) -> Iterable[Entry]:
    """The entries of one rating, or of a chat."""
    feedback = json_object(record, _decode)
    if feedback.snapshot is not None:
        chat = feedback.snapshot.chat or _Chat()
        tree = _messages((chat.chat or chat).history) or _messages(feedback.snapshot.history)
        rating, meta = feedback.data or _Rating(), feedback.meta or _Meta()
        return (_learned(tree, meta.message_id or "", rating, feedback.id or "", meta.chat_id or chat.id or ""),)
    if feedback.chat is not None:
        return tuple(_of_chat(_messages((feedback.chat.chat or feedback.chat).history), feedback.id))
    return (Unknown(feedback.type or "neither feedback nor a chat"),)


def _messages(history: _History | None) -> dict[str, _Message]:
    """The messages of a chat by id, without malformed ones."""
    given = history.messages if history is not None else None
    given = list(given.values()) if isinstance(given, dict) else given
    found = {}
    for one in given if isinstance(given, list) else ():
        try:
            message = msgspec.convert(one, _Message)
        except msgspec.ValidationError:
            continue
        if message.id:
            found[message.id] = message
    return found


def _of_chat(tree: dict[str, _Message], chat: str | None) -> Iterable[Entry]:
    """The ratings in a chat, in older versions."""
    rated = [message for message in tree.values() if isinstance(message.annotation, dict)]
    for message in rated:
        try:
            rating = msgspec.convert(message.annotation, _Rating)
        except msgspec.ValidationError:
            rating = _Rating()
        yield _learned(tree, message.id or "", rating, message.id or "", chat or "")
    if not rated:
        yield Dropped("a chat without a rating")


def _learned(tree: dict[str, _Message], place: str, rating: _Rating, record: str, chat: str) -> Entry:
    score = _score(rating.rating)
    if not score or score != score:  # NaN does not equal itself
        return Dropped("rated neither good nor bad")
    unlearned = "rated bad" if score < 0 else ""
    branch = _branch(tree, place)
    if not branch or branch[-1].role != "assistant":
        return Dropped(unlearned or "a rating whose answer is not in the export")
    if any("<details type=" in THOUGHTS.sub("", string(message.content)) for message in branch):
        return Dropped(unlearned or "a chat with calls of tools, which the export has as HTML")
    said = [
        Said(
            turns.form(message.role or "", THOUGHTS.sub("", string(message.content)).strip()),
            prompt=message.role == "user",
            model=message.model or "",
        )
        for message in branch
        if message.role in ("system", "user", "assistant")
    ]
    words = " ".join(word for word in (f"{score:+g}", rating.reason, rating.comment) if word)
    last = msgspec.structs.replace(
        said[-1], id=record, model=rating.model_id or said[-1].model, signals=(Signal("rating", words[:200]),),
        opinion=Opinion(score > 0, rated=True, worse=_others(tree, branch[-1]) if score > 0 else ()),
    )  # fmt: skip
    return Whole(Session(id=chat, agent=NAME), (*said[:-1], last), len(said) - 1, unlearned)


def _others(tree: dict[str, _Message], kept: _Message) -> tuple[str, ...]:
    """Other answers to the same prompt, as texts."""
    found = (one for one in tree.values() if one.parent_id == kept.parent_id and one.role == "assistant")
    texts = (THOUGHTS.sub("", string(one.content)).strip() for one in found if one is not kept)
    return tuple(text for text in texts if text and "<details type=" not in text)


def _branch(tree: dict[str, _Message], place: str) -> list[_Message]:
    """The messages from the first of a chat to this one."""
    branch: list[_Message] = []
    while place in tree and len(branch) < DEPTH_MAX:
        branch.append(tree[place])
        place = tree[place].parent_id or ""
    return branch[::-1]


def _score(rating: int | float | str | None) -> float | None:
    """A thumb up is 1 and down is -1, in some versions as text."""
    try:
        return float(rating) if rating is not None else None
    except (ValueError, OverflowError):
        return None


READER = SessionReader(NAME, recognise, hear, fold_document)


# Ratings of Open WebUI: the table `feedback` of `webui.db`. A row is a rating with a snapshot of the chat.
#
# After `backend/open_webui/models/feedbacks.py` of open-webui. Each rating is a session of one record, whose key is the
# time of its last change, so that a changed rating is read again.

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
        return Queries(
            f"SELECT id, {born}, CAST(updated_at AS TEXT) FROM feedback ORDER BY updated_at, id",
            "",
            *of_rows("feedback", "updated_at", DOCUMENTS, ("id", "type"), session="id"),
        )

    def session(self, facts: Row) -> Session:
        return Session(agent=NAME)

    def hear(self, facts: Row, records: Sequence[Sequence[Row]]) -> Sequence[Heard]:
        return [attempt(_entries, rows) for rows in records]


def _entries(rows: Sequence[Row]) -> Iterable[Entry]:
    (row,) = rows
    return hear(_as_exported(row))


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


DATABASE = WebuiFeedback()
