"""Databases that are looked at, and the journal's knowledge of them; `restart` forgets everything else."""

from pathlib import Path
from typing import Any

from apollod.adapters.sources.database_files import DatabaseFiles
from apollod.adapters.sources.database_tree import DatabaseTree
from apollod.adapters.sources.quarantine import Quarantine
from apollod.adapters.sources.source_files import Terms
from apollod.core import events as ev
from apollod.core.fold import fold
from apollod.core.intake.policy import intake_events
from apollod.core.state import State
from apollod.wire.records import decode_record


class Polled:
    """A source with databases below `path`."""

    def __init__(self, path: Path, terms: Terms = Terms(), format: str = "auto") -> None:  # noqa: B008
        self.path, self.terms, self.format, self.state = path, terms, format, State()
        self.events: list[ev.Event] = []
        self.now = 0.0
        self.restart()

    def restart(self) -> None:
        quarantine = self.path.parent / "state" / "quarantine"
        self.files = DatabaseFiles(
            Quarantine(quarantine), self.terms, self.format, named=self.path.is_file(), clock=lambda: self.now
        )
        self.tree = DatabaseTree(self.path, self.files, self.path.parent / "state", clock=lambda: self.now)

    def poll(self, most: int = 1 << 30, record: bool = True) -> int:
        """Take up to `most` batches; without `record` the last one is lost, as in a crash."""
        taken = 0
        for path in self.tree.scan():
            while taken < most and (batch := self.files.read_batch(path, self.state.intake.sources)) is not None:
                taken += 1
                if not record and taken == most:
                    return taken
                events = intake_events(batch, {e.example for e in self.events if isinstance(e, ev.ExampleAccepted)})
                for event in events:
                    fold(self.state, ev.Recorded(self.state.seq + 1, 0, event))
                self.events += events
        return taken

    def settle(self) -> None:
        """Everything that waits, after nobody wrote for long enough."""
        self.poll()
        self.now += self.terms.settle_s + 1
        self.poll()

    def learned(self) -> list[str]:
        """What is learned of each example, in the order of acceptance."""
        records = [decode_record(bytes(e.record)) for e in self.events if isinstance(e, ev.ExampleAccepted)]
        return ["|".join(m.content for m in r.messages if m.role == "assistant" and m.weight) for r in records]  # type: ignore[union-attr]  # fmt: skip

    def records(self) -> list[Any]:
        return [decode_record(bytes(e.record)) for e in self.events if isinstance(e, ev.ExampleAccepted)]

    def counts(self) -> dict[str, int]:
        """What gave nothing, over all events."""
        total: dict[str, int] = {}
        for event in self.of(ev.SourceConsumed):
            for what, count in event.counts.items():
                total[what] = total.get(what, 0) + count
        return total

    def of(self, kind: type[ev.Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]
