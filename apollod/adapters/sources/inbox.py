"""The inbox directory: files that somebody puts there to be learned from."""

import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from pathlib import Path

import anyio
import watchfiles
from watchfiles._rust_notify import WatchfilesRustInternalError

from apollod.adapters.sources.quarantine import Quarantine
from apollod.adapters.sources.source_files import LINES_SUFFIXES, SourceFiles, Terms
from apollod.core.inputs import Batch
from apollod.core.intake.state import Position
from apollod.curation.formats.table import ReaderTable

HINT_MS = 200  # changes are gathered this long


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

    async def watch(self, every_s: float = 2.0) -> AsyncIterator[None]:
        """Yields at once, after something changed in the directory, and at least every `every_s` seconds.

        Notifications are only hints: if there are none (no such directory, no watches left), the rescan has to do.
        """
        yield
        while True:
            changes = watchfiles.awatch(
                self._directory,
                debounce=HINT_MS,
                rust_timeout=int(every_s * 1000),
                yield_on_timeout=True,
                recursive=False,
            )
            try:
                async with aclosing(changes):
                    async for _ in changes:
                        yield
            except (OSError, WatchfilesRustInternalError):
                await anyio.sleep(every_s)
                yield

    def close(self) -> None:
        """See `SourceFiles.close`."""
        self._files.close()
