"""The inbox directory: files that somebody puts there to be learned from."""

import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import watchfiles

from apollod.adapters.sources.hints import looks
from apollod.adapters.sources.quarantine import Quarantine
from apollod.adapters.sources.source_files import LINES_SUFFIXES, SourceFiles, Terms
from apollod.core.inputs import Batch
from apollod.core.intake.state import Position
from apollod.curation.formats.table import ReaderTable

GATHER_MS = 200  # changes are gathered this long


class Inbox:
    """One inbox directory. `clock`: seconds since the epoch, compared with files' modification times."""

    def __init__(
        self,
        directory: Path,
        quarantine: Path,
        terms: Terms = Terms(),  # noqa: B008
        clock: Callable[[], float] = time.time,
        formats: ReaderTable | None = None,
    ) -> None:
        self._directory = directory
        kept_in = Quarantine(quarantine)
        kept_in.clear_unfinished()
        self._files = SourceFiles(kept_in, terms, formats, clock)

    def scan(self) -> list[str]:
        """Paths of candidate files, by name; links, pipes and names that begin with a dot are not looked at."""
        try:
            with os.scandir(self._directory) as entries:
                names = [
                    e.name for e in entries if e.name.endswith(LINES_SUFFIXES) and e.is_file(follow_symlinks=False)
                ]
        except FileNotFoundError:
            return []
        return self._files.found([str(self._directory / name) for name in sorted(names) if not name.startswith(".")])

    def read_batch(self, path: str, known: Mapping[str, Position]) -> Batch | None:
        """See `SourceFiles.read_batch`."""
        return self._files.read_batch(path, known)

    def watch(self, every_s: float = 2.0) -> AsyncIterator[None]:
        """See `hints.looks`."""
        return looks(self._directory, every_s, GATHER_MS, watchfiles.DefaultFilter(), recursive=False)

    def close(self) -> None:
        """See `SourceFiles.close`."""
        self._files.close()
