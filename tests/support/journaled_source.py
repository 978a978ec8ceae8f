"""What a source gives, batch by batch, and the journal's knowledge of it."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from apollod.adapters.sources.source_files import Terms
from apollod.core import events as ev
from apollod.core.facts.intake.state import Position
from apollod.core.fold import fold
from apollod.core.inputs import Batch
from apollod.core.rules.intake.policy import intake_events
from apollod.core.state import State
from apollod.wire.records import decode_record


class Files(Protocol):
    def read_batch(self, path: str, known: Mapping[str, Position]) -> Batch | None: ...


class Tree(Protocol):
    def scan(self) -> Iterable[str]: ...


class JournaledSource:
    """A tree of files that is read into a journal of its own. A subclass sets `tree` and `files`."""

    tree: Tree
    files: Files

    def __init__(self, terms: Terms) -> None:
        self.terms, self.state = terms, State()
        self.events: list[ev.Event] = []
        self.now = 0.0

    def read(self, most: int = 1 << 30, record: bool = True) -> int:
        """Take up to `most` batches; without `record` the last one is lost, as in a crash."""
        taken = 0
        for path in self.tree.scan():
            while taken < most and (batch := self.files.read_batch(path, self.state.intake.sources)) is not None:
                taken += 1
                if not record and taken == most:
                    return taken
                events = intake_events(batch, {event.example for event in self.of(ev.ExampleAccepted)})
                for event in events:
                    fold(self.state, ev.Recorded(self.state.seq + 1, 0, event))
                self.events += events
        return taken

    def records(self) -> list[Any]:
        """The records that were accepted, in this order."""
        return [decode_record(bytes(event.record)) for event in self.of(ev.ExampleAccepted)]

    def learned(self) -> list[str]:
        """What is learned of each example, in the order of acceptance."""
        return ["|".join(m.content for m in r.messages if m.role == "assistant" and m.weight) for r in self.records()]

    def of(self, kind: type[ev.Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]
