"""A database that agents write, or a directory in which such databases are found.

There is no notification for what happens inside of a database, so it is looked at again and again; while nothing was
written that costs two stats.
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
    """One `[[watch]]` path. `excluded`: below it nothing is read, because it is written by whoever reads. `clock`:
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
        """Databases that may have something new, by path. Raises OSError where the path cannot be read."""
        path = str(self._path)
        if not self._path.is_dir():
            self._found, self._blocked = [], {}
            if is_database(path):
                self._found = [path]
            elif os.stat(path).st_size:  # one that was just made is empty
                self._blocked = {printable(path): NO_DATABASE}
        elif self._clock() - self._searched >= SEARCH_S:
            self._searched = self._clock()
            self._search(path)
        return self._files.found(self._found)

    def _search(self, directory: str) -> None:
        """Files that begin like a database."""
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
        """What could not be read when it was searched last, without what raised, by path."""
        return self._blocked

    async def watch(self, every_s: float) -> AsyncIterator[None]:
        """Yields at once, then every `every_s` seconds."""
        while True:
            yield
            await anyio.sleep(every_s)
