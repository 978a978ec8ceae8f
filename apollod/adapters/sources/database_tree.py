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
from apollod.adapters.sources.watched_tree import files_in

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
        self._searched = -SEARCH_S

    def scan(self) -> list[str]:
        """Databases that may have something new, by path. Raises OSError where the path cannot be read."""
        if self._path.is_dir():
            if self._clock() - self._searched >= SEARCH_S:
                self._searched = self._clock()
                self._found = databases_in(str(self._path), self._excluded)
        else:
            self._found = [str(self._path)] if is_database(str(self._path)) else []
        return self._files.found(self._found)

    async def watch(self, every_s: float) -> AsyncIterator[None]:
        """Yields at once, then every `every_s` seconds."""
        while True:
            yield
            await anyio.sleep(every_s)


def databases_in(directory: str, excluded: str = "") -> list[str]:
    """Files in a directory and below it that begin like a database, by path. Raises OSError for the directory."""
    return [path for path, _ in sorted(files_in(directory, SUFFIXES, excluded)) if _begins_like_one(path)]


def _begins_like_one(path: str) -> bool:
    try:
        return is_database(path)
    except OSError:
        return False
