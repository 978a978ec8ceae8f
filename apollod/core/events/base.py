"""What all facts have in common."""

from typing import ClassVar

import msgspec


class Event(msgspec.Struct, frozen=True, gc=False):
    """Base of all facts. `kind` and `version` go to columns of their own; the fields are the JSON body.

    `gc=False` (an event holds no cycle): a million of them are not searched for garbage while they are folded.
    """

    kind: ClassVar[str] = ""
    version: ClassVar[int] = 1

    def key(self) -> str:
        """What the event is about, for the journal's indexed `key` column: a step number, an example id, a source."""
        return ""


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """An event as the journal holds it: its place in the order, and when (for people; never used for order)."""

    seq: int
    at_ns: int
    event: Event
