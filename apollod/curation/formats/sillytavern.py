"""Chats of SillyTavern: `data/<user>/chats/<character>/*.jsonl`, and `group chats/`.

After `src/endpoints/chats.js` and `public/script.js` of SillyTavern/SillyTavern. The first line is a header. The file
is rewritten at each change, so it holds the present chat: of several answers to choose from (`swipes`) the one that was
kept is learned, and the rejection of the others is evidence. The greeting of a character was written by its author, not
by the model.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from apollod.curation.conversation import Dropped, Entry, Opinion, Said, Session, Signal
from apollod.curation.formats import turns
from apollod.curation.formats.session_reader import SessionReader, json_object, string

NAME = "sillytavern"


class _Extra(msgspec.Struct):
    type: str | None = None
    model: str | None = None
    api: str | None = None
    reasoning: str | None = None


class _Line(msgspec.Struct):
    """A message; the first line has other fields."""

    user_name: str | None = None
    character_name: str | None = None
    chat_metadata: Any = None
    mes: str | None = None
    is_user: bool | None = None
    is_system: bool | None = None
    swipes: list[Any] | None = None
    swipe_id: int | None = None
    gen_started: Any = None
    extra: _Extra | None = None


_decode = msgspec.json.Decoder(_Line).decode


def recognise(path: str, head: bytes) -> bool:
    """True if the first line names a user and a character."""
    first = head.split(b"\n", 1)[0]
    return b'"user_name"' in first and (b'"character_name"' in first or b'"chat_metadata"' in first)


def hear(line: bytes) -> Iterable[Entry]:
    """The entries of one line."""
    record = json_object(line, _decode)
    if record.mes is None:
        if record.user_name is None and record.chat_metadata is None:
            return (Dropped("a line without a message"),)
        metadata = record.chat_metadata if isinstance(record.chat_metadata, dict) else {}
        return (Session(id=string(metadata.get("integrity")), agent=NAME),)  # which newer versions have
    extra = record.extra or _Extra()
    if record.is_system:
        return (Dropped("a message that is hidden from the model"),)
    if not record.mes.strip():
        return (Dropped("a message without text"),)
    if extra.type == "narrator":
        return (Said(turns.form("system", record.mes)),)
    if record.is_user:
        return (Said(turns.form("user", record.mes), prompt=True),)
    if record.gen_started is None and extra.model is None and extra.api is None:
        greeting = Said(turns.answer(record.mes, context=True))
        return (greeting, Dropped("a greeting, or another answer that no model wrote"))
    others = _others(record)
    return (
        Said(
            turns.answer(record.mes, extra.reasoning),
            model=extra.model or "",
            signals=tuple(Signal("swiped-away", text[:200]) for text in others),
            opinion=Opinion(worse=others) if others else None,
        ),
    )


def _others(record: _Line) -> tuple[str, ...]:
    """The alternative answers that were not kept."""
    swipes = [text for text in record.swipes or () if isinstance(text, str)]
    return tuple(text for text in swipes if text.strip() and text != record.mes)


READER = SessionReader(NAME, recognise, hear)
