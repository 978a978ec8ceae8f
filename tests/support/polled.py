"""Databases that are looked at, and the journal's knowledge of them; `restart` forgets everything else."""

from pathlib import Path

from support.journaled_source import JournaledSource

from apollod.adapters.sources.database_files import DatabaseFiles
from apollod.adapters.sources.quarantine import Quarantine
from apollod.adapters.sources.source_files import Terms
from apollod.adapters.sources.watched_places import DatabaseTree
from apollod.core import events as ev


class Polled(JournaledSource):
    """A source with databases below `path`."""

    def __init__(self, path: Path, terms: Terms = Terms(), format: str = "auto") -> None:  # noqa: B008
        super().__init__(terms)
        self.path, self.format = path, format
        self.restart()

    def restart(self) -> None:
        quarantine = self.path.parent / "state" / "quarantine"
        self.files = DatabaseFiles(
            Quarantine(quarantine), self.terms, self.format, named=self.path.is_file(), clock=lambda: self.now
        )
        self.tree = DatabaseTree(self.path, self.files, self.path.parent / "state", clock=lambda: self.now)

    poll = JournaledSource.read

    def settle(self) -> None:
        """Everything that waits, after nobody wrote for long enough."""
        self.poll()
        self.now += self.terms.settle_s + 1
        self.poll()

    def counts(self) -> dict[str, int]:
        """What gave nothing, over all events."""
        total: dict[str, int] = {}
        for event in self.of(ev.SourceConsumed):
            for what, count in event.counts.items():
                total[what] = total.get(what, 0) + count
        return total
