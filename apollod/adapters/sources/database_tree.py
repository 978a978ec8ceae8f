"""A database that agents write, or a directory that is searched for such databases.

There is no notification for changes inside a database, so it is polled; while nothing was written that costs two stats.
"""

import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio

from apollod.adapters.sources.database_files import DatabaseFiles
from apollod.adapters.sources.foreign_database import SUFFIXES, is_database
from apollod.adapters.sources.source_files import printable
from apollod.adapters.sources.tree_walk import TreeWalk
from apollod.adapters.sources.unreadable import NO_DATABASE, obstruction
from apollod.core.inputs import Obstruction

SEARCH_S = 60.0  # between two searches for new databases in a directory


class DatabaseTree:
    """One `[[watch]]` path. `excluded`: directory that apollod itself writes; nothing below it is read. `clock`:
    seconds, only going up."""

    def __init__(
        self, path: Path, files: DatabaseFiles, excluded: Path, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._files = files
        self._excluded = os.path.realpath(excluded)
        self._clock = clock
        self._found: list[str] = []
        self._blocked: dict[str, Obstruction] = {}
        self._searched = -SEARCH_S

    def scan(self) -> list[str]:
        """Return the paths of databases that may have new records. Raises OSError where the path cannot be read."""
        path = str(self._path)
        if not self._path.is_dir():
            self._found, self._blocked = [], {}
            if is_database(path):
                self._found = [path]
            elif os.stat(path).st_size:  # a new database is empty
                self._blocked = {printable(path): NO_DATABASE}
        elif self._clock() - self._searched >= SEARCH_S:
            self._searched = self._clock()
            self._search(path)
        return self._files.found(self._found)

    def _search(self, directory: str) -> None:
        """Find files that begin like a database."""
        walk = TreeWalk(directory, SUFFIXES, self._excluded)
        self._found = []
        for path, _ in sorted(walk.files()):
            try:
                if is_database(path):
                    self._found.append(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                walk.blocked[printable(path)] = obstruction(error, path)
        self._blocked = walk.blocked

    def blocked(self) -> dict[str, Obstruction]:
        """Unreadable paths of the last search, except those that raised an error."""
        return self._blocked

    async def watch(self, every_s: float) -> AsyncIterator[None]:
        """Yield at once, then every `every_s` seconds."""
        while True:
            yield
            await anyio.sleep(every_s)
