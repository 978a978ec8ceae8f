"""Training records and rows of data sets, one a line: the format of the inbox if no other is recognised.

A row is made into a record of `wire/records` by its shape (`rows/row_shapes.py`), line by line, so that a file may mix
them. The readers differ in their names alone, which say what a file begins with.
"""

from collections import Counter
from collections.abc import Iterable

import msgspec

from apollod.curation.conversation import Dropped
from apollod.curation.formats.lines import fold_lines, too_long_reason
from apollod.curation.formats.reader import ACCIDENTS, Bad, Cursor, Folded, Found, Item, Limits, accident
from apollod.curation.formats.rows.row_shapes import SHAPES, convert, name_of
from apollod.errors import RecordRefused
from apollod.wire.records import object_of_line, record_of


class JsonlRecords:
    """The reader of training records. Every line stands for itself, so it carries no state."""

    def __init__(self, name: str = "records") -> None:
        self.name = name

    def recognise(self, path: str, head: bytes) -> bool:
        """By its first row. Plain records by their suffix alone: a broken first line is a bad line, not another
        format."""
        return path.endswith(".jsonl") if self.name == "records" else _first_name(head) == self.name

    def fold(self, cursor: Cursor, data: bytes, end: bool, limits: Limits) -> Folded:
        """See `Reader.fold`."""
        counts = Counter[str]()

        def take(number: int, line: bytes) -> Iterable[Item]:
            row = _read(number, line, limits)
            if isinstance(row, Dropped):
                counts[f"dropped: {row.reason}"] += 1
                return ()
            return row

        folded = fold_lines(cursor, data, end, limits, take)
        counts.update(folded.counts)
        return folded._replace(counts=counts)

    def settle(self, cursor: Cursor) -> Folded:
        """See `Reader.settle`."""
        return Folded(cursor, ())

    def recall(self, cursor: Cursor, before: Iterable[bytes], limits: Limits) -> Cursor:
        """See `Reader.recall`."""
        return cursor


ROWS = tuple(JsonlRecords(shape.name) for shape in SHAPES)
"""A reader for each shape of rows."""


def read_record(number: int, line: bytes, limits: Limits) -> tuple[Found | Bad, ...]:
    """One line that came as a whole, as a record or a bad line; nothing for a blank one. Somebody waits for it, so a
    row that is no example is said to be bad."""
    row = _read(number, line, limits)
    return (Bad(number, f"the row is no example: it is {row.reason}", line),) if isinstance(row, Dropped) else row


def _read(number: int, line: bytes, limits: Limits) -> tuple[Found | Bad, ...] | Dropped:
    if len(line) > limits.record_bytes:
        return (Bad(number, too_long_reason(limits), line),)
    if not line.strip():
        return ()
    try:
        row = convert(object_of_line(line))
        return row if isinstance(row, Dropped) else (Found(number, record_of(row)),)
    except RecordRefused as error:
        return (Bad(number, error.line(), line),)
    except ACCIDENTS as error:
        return (Bad(number, accident(error), line),)


def _first_name(head: bytes) -> str:
    """The shape of the first row, if all of it is there."""
    line = next((line for line in head.split(b"\n") if line.strip()), b"")
    try:
        row = msgspec.json.decode(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return ""
    return name_of(row) if isinstance(row, dict) else ""
