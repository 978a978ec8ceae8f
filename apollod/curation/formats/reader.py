"""Interface between a source and a format: a `Reader` interprets the bytes of a log.

A reader is a pure function with explicit memory. `fold` gets a cursor and the bytes that follow it, and returns the
complete records in them together with the cursor after them. Everything that a reader has to remember of earlier bytes
(a conversation that is still growing) stands in that cursor, so a cursor is enough to go on after a crash.

The laws, which tests/property/test_readers.py checks for every reader of the table:

1. `recognise` and `fold` never raise, whatever the bytes are.
2. Cutting the bytes into pieces changes nothing: bytes that `fold` did not use are given again, with more behind them.
3. Going on from any cursor that `fold` returned gives the rest: nothing lost, nothing twice.
4. `fold` uses some of the bytes as soon as it has more than `Limits.record_bytes`, so a caller's buffer is bounded.
   A reader that remembers more than a cursor should record keeps it in `Cursor.memory`; to go on from a recorded
   cursor, `recall` reads the bytes before it again.
5. A cursor `inside` a record is returned only with the one item `Bad.more`; going on from it gives the rest of that
   record first.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from apollod.curation.conversation import Moment, Opinion, Remark
from apollod.curation.redaction import redact
from apollod.wire.records import Record


class Cursor(msgspec.Struct, frozen=True):
    """Position up to which a source is read. If `inside` is false, everything before it is processed, so it may be
    recorded."""

    offset: int = 0
    """bytes of the (unpacked) content before it"""
    line: int = 0
    """lines before it; for a format without lines, records. More than 0 once anything was processed"""
    state: str = ""
    """the reader's recorded memory as JSON, or empty"""
    inside: bool = False
    """true in the middle of a record that is refused for its length (`Bad.more`)"""
    memory: Any = None
    """the reader's further memory of earlier bytes; never changed, never recorded"""


class Limits(NamedTuple):
    """Limits of one `fold`."""

    record_bytes: int = 1 << 20
    """a longer record is refused"""
    items: int = 256
    """stop after so many items; the record that goes over the limit is still returned whole"""


class Found(NamedTuple):
    """A record that can be learned from, and the line (from 1) in which it ends. `opinion`: on its last answer."""

    line: int
    record: Record
    opinion: Opinion | None = None


class Bad(NamedTuple):
    """Bytes that are not a record, and the line (from 1) of the source at which they stand."""

    line: int
    reason: str
    """the problem, and how to fix it"""
    data: bytes
    more: bool = False
    """True for a piece of an overlong record, which the next item continues; such an item comes alone"""


Item = Found | Moment | Remark | Bad

ACCIDENTS = (TypeError, ValueError, LookupError, AttributeError, RecursionError)
"""Exceptions of a faulty reader: they cost one record, which is kept, and the rest of the log is read."""


def accident(error: Exception) -> str:
    """The reason for refusing a record that made the reader fail."""
    what = " ".join(str(error).split())[:200]
    return f"this reader fails on the record ({type(error).__name__}: {what}); please report it with the kept bytes"


class Folded(NamedTuple):
    """The result of a `fold`: `cursor.offset` minus the offset it was given is the number of bytes used."""

    cursor: Cursor
    items: tuple[Item, ...]
    counts: Mapping[str, int] = {}
    """records without an item, by `dropped: REASON` or `unknown: TYPE`"""


Take = Callable[[int, bytes], Iterable[Item]]
"""(number of a record from 1, its bytes) -> its items"""
Split = Callable[[Cursor, bytes, bool, Limits, Take], Folded]
"""A `fold` that only cuts bytes into records: `fold_lines`, or `fold_document` for a kind of document."""


class Reader(Protocol):
    """One log format."""

    @property
    def name(self) -> str:
        """Name in configuration and journal; never changed once released."""

    def recognise(self, path: str, head: bytes) -> bool:
        """True if a source has this format. `head`: its first bytes, unpacked; `path`: without the suffix of a packer.

        The content has priority over the path, which may be anything.
        """

    def fold(self, cursor: Cursor, data: bytes, end: bool, limits: Limits) -> Folded:
        """Process the complete records in `data`, the bytes of the source from `cursor` on. `end`: no more bytes will
        follow.

        With `end`, call again until neither the cursor moves nor an item is returned. A state that the reader does not
        understand is ignored.
        """

    def settle(self, cursor: Cursor) -> Folded:
        """Close the waiting items as if nothing more came: the source has been idle for a while."""

    def recall(self, cursor: Cursor, before: Iterable[bytes], limits: Limits) -> Cursor:
        """A recorded cursor with its memory restored. `before`: all bytes before it, in pieces; `limits`: those of the
        original read."""


# Splits a log into lines: the usual part of `Reader.fold`.

BOM = b"\xef\xbb\xbf"


def fold_lines(cursor: Cursor, data: bytes, end: bool, limits: Limits, take: Take) -> Folded:
    """Give each complete line of `data` to `take`, with its newline. The last one is complete by `end`, too.

    A line over the limit is refused piece by piece without being held whole. A byte order mark at the very beginning is
    dropped. The state in the cursor is passed on as it is. Secrets are redacted before a line is parsed.
    """
    at, line, inside = 0, cursor.line, cursor.inside
    items: list[Item] = []
    counts = Counter[str]()
    while len(items) < limits.items and (at < len(data) or (end and inside)):
        begin, at = at, data.find(b"\n", at) + 1
        complete = at > 0 or end
        at = at or len(data)
        too_long = inside or at - begin > limits.record_bytes
        if not complete and (begin > 0 or not too_long):  # an incomplete piece comes alone
            at = begin
            break
        if not complete:
            at = begin + whole_words(data[begin:at])
        piece, secrets = redact(data[begin:at])
        if secrets:
            counts.update({f"redacted: {kind}": number for kind, number in secrets.items()})
        if too_long:
            items.append(Bad(line + 1, too_long_reason(limits), piece, more=not complete))
        else:
            items += take(line + 1, piece.removeprefix(BOM) if cursor.offset + begin == 0 else piece)
        inside = not complete
        line += complete
    return Folded(Cursor(cursor.offset + at, line, cursor.state, inside), tuple(items), counts)


def whole_words(piece: bytes) -> int:
    """Number of bytes of a piece to release now so that, if possible, no secret is cut in two."""
    last = max(piece.rfind(mark, len(piece) // 2) for mark in (b" ", b'"', b"\\", b"\t"))
    key = piece.rfind(b"-----BEGIN", len(piece) // 2)
    if key > 0 and b"-----END" not in piece[key:]:
        last = key
    return last if last > 0 else len(piece)


def too_long_reason(limits: Limits) -> str:
    """The reason for refusing an overlong line unread."""
    return f"the line is longer than {limits.record_bytes} bytes; split it, or leave out what the model need not see"
