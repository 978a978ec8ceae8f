"""A watched directory with all its subdirectories: logs that agents write by themselves.

Rule: a scan covers the whole tree and costs a stat of each file.
"""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import watchfiles

from apollod.adapters.sources.hints import looks
from apollod.adapters.sources.source_files import SUFFIXES, SourceFiles
from apollod.adapters.sources.tree_walk import TreeWalk
from apollod.core.inputs import Obstruction

GATHER_MS = 500  # changes are gathered this long


class WatchedTree:
    """One `[[watch]]` directory. `excluded`: directory that apollod itself writes; nothing below it is read."""

    def __init__(self, directory: Path, files: SourceFiles, excluded: Path) -> None:
        self._directory = directory
        self._files = files
        self._excluded = os.path.realpath(excluded)
        self._blocked: dict[str, Obstruction] = {}

    def scan(self) -> list[str]:
        """Return files that may have new records, by path. Raises OSError where the directory itself cannot be read."""
        walk = TreeWalk(str(self._directory), SUFFIXES, self._excluded)
        found = dict(walk.files())
        self._blocked = walk.blocked
        paths = sorted(found)
        names = self._files.found(paths)
        return [name for name, path in zip(names, paths, strict=True) if not self._files.is_idle(name, found[path])]

    def blocked(self) -> dict[str, Obstruction]:
        """Unreadable paths of the last scan and read, except those that raised an error."""
        return self._blocked | self._files.unread()

    def watch(self, every_s: float) -> AsyncIterator[None]:
        """See `hints.looks`."""
        return looks(self._directory, every_s, GATHER_MS, _may_matter, recursive=True)


def _may_matter(change: watchfiles.Change, path: str) -> bool:
    """True for a log, or for a new directory: files in it may precede its notifications."""
    return path.endswith(SUFFIXES) or (change is watchfiles.Change.added and os.path.isdir(path))
