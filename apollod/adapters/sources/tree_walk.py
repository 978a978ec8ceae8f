"""Walks a directory tree and records what in it cannot be read."""

import os
import stat
from collections.abc import Iterator

from apollod.adapters.sources.source_files import printable
from apollod.adapters.sources.unreadable import OURS, entry_obstruction, obstruction
from apollod.core.inputs import Obstruction


class TreeWalk:
    """Regular files by suffix, without names that begin with a dot. Nothing below `excluded` (a real path) is read.
    Links are not followed, pipes and devices not opened."""

    def __init__(self, directory: str, suffixes: tuple[str, ...], excluded: str = "") -> None:
        self._directory = directory
        self._real = os.path.realpath(directory)
        self._suffixes = suffixes
        self._excluded = excluded
        self.blocked: dict[str, Obstruction] = {}
        """unreadable paths found"""

    def files(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield all of them, in no particular order. Raises OSError where the directory itself cannot be read."""
        yield from self._files(self._directory, top=True)

    def _files(self, directory: str, top: bool = False) -> Iterator[tuple[str, os.stat_result]]:
        if os.path.realpath(directory) == self._excluded:
            self._block(directory, OURS)
            return
        below = []
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        below.append(entry.path)
                    elif (why := entry_obstruction(entry, self._suffixes, self._real)) is not None:
                        self._block(entry.path, why)
                    elif entry.name.endswith(self._suffixes) and not entry.name.startswith("."):
                        status = entry.stat(follow_symlinks=False)
                        if stat.S_ISREG(status.st_mode):
                            yield entry.path, status
        except FileNotFoundError:
            if top:
                raise
            return
        except OSError as error:
            if top:
                raise
            self._block(directory, obstruction(error, directory))
            return
        for path in below:
            yield from self._files(path)

    def _block(self, path: str, why: Obstruction) -> None:
        self.blocked[printable(path)] = why
