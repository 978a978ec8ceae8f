"""The inbox directory: files that are put there are learned."""

import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import watchfiles

from apollod.adapters.sources.hints import looks
from apollod.adapters.sources.quarantine import Quarantine
from apollod.adapters.sources.source_files import LINES_SUFFIXES, SourceFiles, Terms, printable
from apollod.adapters.sources.unreadable import entry_obstruction, obstruction
from apollod.core.inputs import Batch, Obstruction
from apollod.core.intake.state import Position
from apollod.curation.formats.table import ReaderTable

GATHER_MS = 200  # changes are gathered this long


class Inbox:
    """One inbox directory. `clock` and `own`: see `SourceFiles`."""

    def __init__(
        self,
        directory: Path,
        quarantine: Path,
        terms: Terms = Terms(),  # noqa: B008
        clock: Callable[[], float] = time.time,
        formats: ReaderTable | None = None,
        own: frozenset[tuple[int, int]] = frozenset(),
    ) -> None:
        self._directory = directory
        kept_in = Quarantine(quarantine)
        kept_in.clear_unfinished()
        self._files = SourceFiles(kept_in, terms, formats, clock, own)
        self._blocked: dict[str, Obstruction] = {}

    def scan(self) -> list[str]:
        """Return paths of candidate files, sorted by name; links, pipes and names that begin with a dot are skipped."""
        place, real, names = str(self._directory), os.path.realpath(self._directory), list[str]()
        self._blocked = {}
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    why = entry_obstruction(entry, LINES_SUFFIXES, real)
                    if why is not None:
                        self._blocked[printable(entry.path)] = why
                    elif entry.name.endswith(LINES_SUFFIXES) and entry.is_file(follow_symlinks=False):
                        names.append(entry.name)
        except FileNotFoundError as error:
            self._blocked = {printable(place): obstruction(error, place)}
            return []
        return self._files.found([str(self._directory / name) for name in sorted(names) if not name.startswith(".")])

    def blocked(self) -> dict[str, Obstruction]:
        """See `WatchedTree.blocked`."""
        return self._blocked | self._files.unread()

    def read_batch(self, path: str, known: Mapping[str, Position]) -> Batch | None:
        """See `SourceFiles.read_batch`."""
        return self._files.read_batch(path, known)

    def watch(self, every_s: float = 2.0) -> AsyncIterator[None]:
        """See `hints.looks`."""
        return looks(self._directory, every_s, GATHER_MS, watchfiles.DefaultFilter(), recursive=False)

    def close(self) -> None:
        """See `SourceFiles.close`."""
        self._files.close()
