"""Training records and rows of data sets, one a line or in one array: the inbox's default format.

A row becomes a record of `wire/records` by its shape (`rows/row_shapes.py`), line by line, so that a file may mix them.
The readers of lines differ only in name, which tells the shape of a file's first row.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from apollod.curation.conversation import Dropped
from apollod.curation.formats.data_set_rows import SHAPES, convert, name_of, opinion_in
from apollod.curation.formats.document import fold_document
from apollod.curation.formats.reader import (
    ACCIDENTS,
    Bad,
    Cursor,
    Folded,
    Found,
    Item,
    Limits,
    Split,
    accident,
    fold_lines,
    too_long_reason,
)
from apollod.errors import RecordRefused
from apollod.wire.records import object_of_line, record_of

PLAIN = frozenset({"messages", "text", "prompt", "token_ids"})
BARE_TEXT = Dropped('a text that stands alone; `format = "records"` takes it')


class JsonlRecords:
    """The reader of training records. Every line is independent, so it carries no state. `texts`: take texts that are
    not part of a conversation, too."""

    def __init__(self, name: str = "records", split: Split = fold_lines, texts: bool = True) -> None:
        self.name = name
        self._split = split
        self._texts = texts

    def without_texts(self) -> "JsonlRecords":
        """The same reader, but leaving out bare texts."""
        return JsonlRecords(self.name, self._split, texts=False)

    def recognise(self, path: str, head: bytes) -> bool:
        """True if the first row has this shape. Plain records go by their suffix alone: a broken first line is a bad
        line, not another format."""
        if self.name == "records":
            return path.endswith(".jsonl")
        array = self._split is fold_document
        if array != head.lstrip().startswith(b"["):
            return False
        row = _first_row(head, array)
        return name_of(row) != "" or not PLAIN.isdisjoint(row) if array else name_of(row) == self.name

    def fold(self, cursor: Cursor, data: bytes, end: bool, limits: Limits) -> Folded:
        counts = Counter[str]()

        def take(number: int, line: bytes) -> Iterable[Item]:
            row = _read(number, line, limits, self._texts)
            if isinstance(row, Dropped):
                counts[f"dropped: {row.reason}"] += 1
                return ()
            return row

        folded = self._split(cursor, data, end, limits, take)
        counts.update(folded.counts)
        return folded._replace(counts=counts)

    def settle(self, cursor: Cursor) -> Folded:
        return Folded(cursor, ())

    def recall(self, cursor: Cursor, before: Iterable[bytes], limits: Limits) -> Cursor:
        return cursor


ROWS = tuple(JsonlRecords(shape.name) for shape in SHAPES)
"""A reader for each shape of rows."""
ARRAY = JsonlRecords("json-rows", fold_document)
"""The reader of all of them in one JSON array."""


def read_record(number: int, line: bytes, limits: Limits) -> tuple[Found | Bad, ...]:
    """One complete line as a record or a bad line; nothing for a blank one. The sender waits for the result, so a row
    that is not an example is bad, too."""
    row = _read(number, line, limits)
    return (Bad(number, f"the row is no example: it is {row.reason}", line),) if isinstance(row, Dropped) else row


def _read(number: int, line: bytes, limits: Limits, texts: bool = True) -> tuple[Found | Bad, ...] | Dropped:
    if len(line) > limits.record_bytes:
        return (Bad(number, too_long_reason(limits), line),)
    if not line.strip():
        return ()
    try:
        row = convert(object_of_line(line))
        if isinstance(row, Dropped):
            return row
        opinion = opinion_in(row)
        return (Found(number, record_of(row), opinion),) if texts or "text" not in row else BARE_TEXT
    except RecordRefused as error:
        return (Bad(number, error.line(), line),)
    except ACCIDENTS as error:
        return (Bad(number, accident(error), line),)


def _first_row(head: bytes, array: bool) -> dict[str, Any]:
    """The first row if it is complete, else an empty one."""
    pieces = [line for line in head.split(b"\n", 20) if line.strip()][:1]
    if array:
        pieces.clear()

        def take(number: int, piece: bytes) -> Iterable[Item]:
            pieces.append(piece)
            return (Bad(number, "", piece),)  # `fold_document` stops after one item

        fold_document(Cursor(), head, True, Limits(items=1), take)
    try:
        row = msgspec.json.decode(pieces[0])
    except (msgspec.MsgspecError, *ACCIDENTS):
        return {}
    return row if isinstance(row, dict) else {}
