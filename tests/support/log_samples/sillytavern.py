"""Lines of SillyTavern's chats."""

import json


def line(**fields: object) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def said(text: str, **more: object) -> bytes:
    return line(name="Ada", is_user=False, is_system=False, send_date="2026-01-01", mes=text, **more)


def asked(text: str, **more: object) -> bytes:
    return line(name="You", is_user=True, is_system=False, mes=text, extra={}, **more)


OURS = {"gen_started": "2026-01-01T00:00:00Z", "extra": {"api": "custom", "model": "apollo", "reasoning": "hm"}}
HEADER = line(user_name="You", character_name="Ada", create_date="2026-01-01", chat_metadata={"integrity": "i1"})
CHAT = (
    HEADER,
    said("Hello there.", swipes=["Hello there.", "Hi."], swipe_id=0, extra={}),
    asked("Who are you?"),
    said("I am Ada.", swipes=["Nobody.", "I am Ada."], swipe_id=1, swipe_info=[{}, {}], **OURS),
    line(name="System", is_user=False, is_system=True, mes="hidden", extra={}),
    said("Night falls.", extra={"type": "narrator"}),
    asked("Good night."),
    said("Sleep well.", gen_started="2026-01-01", extra={"model": "other"}),
    asked("You, too."),
    said("Dreams.", **OURS),
)
DRIFT = (
    line(user_name="unused", character_name="unused", chat_metadata={}, more=1),
    asked("q", mood="good"),
    line(name="Ada", mes="a", gen_started=7, extra={"type": None, "token_count": 3}),
    line(name="Ada", is_user=False, mes=""),
    line(bookmark="b"),
)
BROKEN = (
    line(mes=7),
    line(mes="a", swipes="b"),
    line(mes="a", extra=[]),
    b"not JSON\n",
    b"\n",
    b'{"extra": ' + b"[" * 3000 + b"\n",
    b'{"mes',
)
LINES = (*CHAT, *DRIFT, *BROKEN)
