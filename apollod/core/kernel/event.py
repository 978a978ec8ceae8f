"""Facts: what the journal holds.

Law: a kind, once released, is never renamed or reused; a field is never removed, and a new one has a default; a change
of meaning is a new `version` with an upcast in `wire.event_codec`. Bodies hold JSON values only, no floats that JSON
cannot carry.
"""

from typing import ClassVar

import msgspec


class Event(msgspec.Struct, frozen=True, gc=False):
    """Base of all facts. `kind` and `version` go to columns of their own; the fields are the JSON body.

    `gc=False` (an event holds no cycle): a million of them are not searched for garbage while they are folded.
    """

    kind: ClassVar[str] = ""
    version: ClassVar[int] = 1

    def key(self) -> str:
        """Subject of the event, for the journal's indexed `key` column: a step number, an example id, a source."""
        return ""


class StepEvent(Event, frozen=True):
    """Base of events about one step, or about the weights after it."""

    step: int

    def key(self) -> str:
        return str(self.step)


class ExampleEvent(Event, frozen=True):
    """Base of events about one example."""

    example: str

    def key(self) -> str:
        return self.example


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """An event as the journal holds it: its place in the order, and its time (for people; never used for order)."""

    seq: int
    at_ns: int
    event: Event
