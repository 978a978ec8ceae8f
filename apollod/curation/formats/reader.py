"""The seam between a source and a format: a `Reader` says what the bytes of a log mean.

A reader is a pure function with its memory in the open. `fold` gets a cursor and the bytes that follow it, and returns
what lies complete in them together with the cursor after it. Whatever a reader has to remember of the bytes before (a
conversation that is still growing) stands in that cursor, so a cursor is all that is needed to go on after a crash.

The laws, which tests/property/test_readers.py checks for every reader of the table:

1. `recognise` and `fold` never raise, whatever the bytes are.
2. Cutting the bytes into pieces changes nothing: bytes that `fold` did not use are given again, with more behind them.
3. Going on from any cursor that `fold` returned gives what is left: nothing lost, nothing twice.
4. `fold` uses some of the bytes as soon as it has more than `Limits.record_bytes`, so a caller's buffer is bounded.
   A reader that remembers more than a cursor should record keeps it in `Cursor.memory`; whoever goes on from a recorded
   cursor has `recall` read the bytes before it again.
5. A cursor `inside` a record is returned only with the one item `Bad.more`; going on from it gives the rest of that
   record first.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from apollod.curation.conversation import Moment, Remark
from apollod.wire.records import Record


class Cursor(msgspec.Struct, frozen=True):
    """Position up to which a source is read. `inside` false: everything before it is done with, so it may be
    recorded."""

    offset: int = 0
    """bytes of the (unpacked) content before it"""
    line: int = 0
    """lines before it; for a format without lines, records. More than 0 where something has been done with"""
    state: str = ""
    """the reader's own: JSON in which it says what it has to remember, or nothing"""
    inside: bool = False
    """in the middle of a record that is refused for its length (`Bad.more`)"""
    memory: Any = None
    """what the reader remembers of the bytes before beyond its state; never changed, never recorded"""


class Limits(NamedTuple):
    """Limits of one `fold`."""

    record_bytes: int = 1 << 20
    """a longer record is refused"""
    items: int = 256
    """stop after so many items; the record that goes over the limit is still returned whole"""


class Found(NamedTuple):
    """A record that can be learned from, and the line (from 1) in which it ends."""

    line: int
    record: Record


class Bad(NamedTuple):
    """Bytes that are not a record, and the line (from 1) of the source at which they stand."""

    line: int
    reason: str
    """what is wrong and what to do"""
    data: bytes
    more: bool = False
    """the record is too long to be held at once, and the next item continues it; such an item comes alone"""


Item = Found | Moment | Remark | Bad

ACCIDENTS = (TypeError, ValueError, LookupError, AttributeError, RecursionError)
"""What a reader with an error in it raises. One record is kept then, and the rest of the log is read."""


def accident(error: Exception) -> str:
    """The reason why a record is refused that the reader stumbled over."""
    what = " ".join(str(error).split())[:200]
    return f"this reader fails on the record ({type(error).__name__}: {what}); please report it with the kept bytes"


class Folded(NamedTuple):
    """The result of a `fold`: `cursor.offset` minus the offset it was given is the number of bytes used."""

    cursor: Cursor
    items: tuple[Item, ...]
    counts: Mapping[str, int] = {}
    """records that gave nothing, by `dropped: REASON` or `unknown: TYPE`"""


Take = Callable[[int, bytes], Iterable[Item]]
"""(number of a record from 1, its bytes) -> what it gives"""
Split = Callable[[Cursor, bytes, bool, Limits, Take], Folded]
"""A `fold` that only cuts bytes into records: `fold_lines`, or `fold_document` for a kind of document."""


class Reader(Protocol):
    """One log format."""

    @property
    def name(self) -> str:
        """Its name in configuration and journal; once released it is never changed."""

    def recognise(self, path: str, head: bytes) -> bool:
        """True if a source has this format. `head`: its first bytes, unpacked; `path`: without the suffix of a packer.

        The content counts before the path, which may be anything.
        """

    def fold(self, cursor: Cursor, data: bytes, end: bool, limits: Limits) -> Folded:
        """What is complete in `data`, the bytes of the source from `cursor` on. `end`: no more bytes will follow.

        With `end`, call again until neither the cursor moves nor an item is returned. A state that the reader does not
        understand counts as none.
        """

    def settle(self, cursor: Cursor) -> Folded:
        """What waits for more, as if none came: nobody has written to the source for a while."""

    def recall(self, cursor: Cursor, before: Iterable[bytes], limits: Limits) -> Cursor:
        """A recorded cursor with the memory that belongs to it. `before`: all bytes before it, in pieces;
        `limits`: as they were read with."""
