"""Training records, one a line, in the shapes of `wire/records`: the format of the inbox if no other is recognised."""

from collections.abc import Iterable

from apollod.curation.formats.lines import fold_lines, too_long_reason
from apollod.curation.formats.reader import Bad, Cursor, Folded, Found, Limits
from apollod.errors import RecordRefused
from apollod.wire.records import parse_line


class JsonlRecords:
    """The reader of training records. Every line stands for itself, so it carries no state."""

    name = "records"

    def recognise(self, path: str, head: bytes) -> bool:
        """By its suffix alone: a broken first line is a bad line, not another format."""
        return path.endswith(".jsonl")

    def fold(self, cursor: Cursor, data: bytes, end: bool, limits: Limits) -> Folded:
        """See `Reader.fold`."""
        return fold_lines(cursor, data, end, limits, lambda number, line: read_record(number, line, limits))

    def settle(self, cursor: Cursor) -> Folded:
        """See `Reader.settle`."""
        return Folded(cursor, ())

    def recall(self, cursor: Cursor, before: Iterable[bytes], limits: Limits) -> Cursor:
        """See `Reader.recall`."""
        return cursor


def read_record(number: int, line: bytes, limits: Limits) -> tuple[Found | Bad, ...]:
    """One line that came as a whole, as a record or a bad line; nothing for a blank one."""
    if len(line) > limits.record_bytes:
        return (Bad(number, too_long_reason(limits), line),)
    if not line.strip():
        return ()
    try:
        return (Found(number, parse_line(line)),)
    except RecordRefused as error:
        return (Bad(number, error.line(), line),)
