"""A second log format, for tests only: conversations over several lines, which a reader has to carry in its cursor.

> what somebody says
< what the model says
(an empty line ends the conversation)
"""

import json
from collections.abc import Iterable

import msgspec

from apollod.curation.formats.reader import Bad, Cursor, Folded, Found, Item, Limits, fold_lines
from apollod.errors import RecordRefused
from apollod.wire.records import parse_line

ROLES = {b">": "user", b"<": "assistant"}


class _State(msgspec.Struct):
    messages: list[dict[str, str]] = []


class ToyConversations:
    name = "toy"

    def recognise(self, path: str, head: bytes) -> bool:
        return head[:2] in (b"> ", b"< ")

    def fold(self, cursor: Cursor, data: bytes, end: bool, limits: Limits) -> Folded:
        try:
            state = msgspec.json.decode(cursor.state or "{}", type=_State)
        except msgspec.MsgspecError:
            state = _State()

        def take(number: int, line: bytes) -> list[Item]:
            line = line.rstrip(b"\r\n")
            if not line:
                return close(number, line)
            if line[:1] not in ROLES:
                return [Bad(number, "the line begins with neither > nor <; begin it so", line)]
            state.messages.append({"role": ROLES[line[:1]], "content": line[1:].decode("utf-8", "replace").strip()})
            return []

        def close(number: int, line: bytes) -> list[Item]:
            messages, state.messages = state.messages, []
            if not messages:
                return []
            try:
                return [Found(number, parse_line(json.dumps({"messages": messages}).encode()))]
            except RecordRefused as error:
                return [Bad(number, error.line(), line)]

        folded = fold_lines(cursor, data, end, limits, take)
        after, items = folded.cursor, list(folded.items)
        if end and after.offset == cursor.offset + len(data) and len(items) < limits.items:
            items += close(after.line, b"")
        kept = msgspec.json.encode(state).decode() if state.messages else ""
        return Folded(msgspec.structs.replace(after, state=kept), tuple(items))

    def settle(self, cursor: Cursor) -> Folded:
        return Folded(cursor, ())

    def recall(self, cursor: Cursor, before: Iterable[bytes], limits: Limits) -> Cursor:
        return cursor
