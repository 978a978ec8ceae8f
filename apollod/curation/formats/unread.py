"""Recognises files that no reader can read, by their first bytes, so that nothing of them is learned by mistake."""

import re
from typing import Literal

import msgspec

Unread = Literal["", "document", "unknown"]
"""Reason for not reading a file: it is one JSON value over several lines, or the log of an unknown agent"""
ROW_KEYS = frozenset({"messages", "conversations", "prompt", "instruction", "text", "chosen", "preferred_output"})
"""Every row that may be learned has at least one of these keys"""
ROWS_LOOKED_AT = 20
DOCUMENT_REASON = "it is one JSON document over several lines; write one object a line, for instance with `jq -c .`"
_DOCUMENT = re.compile(rb"\s*(?:\{\s*\n\s*\"(?:[^\"\\\n]|\\.)*\"\s*:|\[\s*\n)")
_KEY = re.compile(rb'"(%s)"\s*:' % "|".join(sorted(ROW_KEYS)).encode())


def is_document(head: bytes) -> bool:
    """True if the file begins like one JSON value written over several lines."""
    return _DOCUMENT.match(head) is not None


def has_rows(head: bytes) -> bool:
    """True if an early line may be a row of a data set. An incomplete line is judged by its keys."""
    lines = head.split(b"\n", ROWS_LOOKED_AT)
    for line in lines[:ROWS_LOOKED_AT]:
        try:
            row = msgspec.json.decode(line)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            if line is lines[-1] and _KEY.search(line):
                return True
            continue
        if isinstance(row, dict) and not ROW_KEYS.isdisjoint(row):
            return True
    return False
