"""A watched directory with all below it: logs that agents write by themselves.

Law: a scan looks at everything and costs a stat of each file.
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
    """One `[[watch]]` directory. `excluded`: below it nothing is read, because it is written by whoever reads."""

    def __init__(self, directory: Path, files: SourceFiles, excluded: Path) -> None:
        self._directory = directory
        self._files = files
        self._excluded = os.path.realpath(excluded)
        self._blocked: dict[str, Obstruction] = {}

    def scan(self) -> list[str]:
        """Files that may have something new, by path. Raises OSError where the directory itself cannot be read."""
        walk = TreeWalk(str(self._directory), SUFFIXES, self._excluded)
        found = dict(walk.files())
        self._blocked = walk.blocked
        paths = sorted(found)
        names = self._files.found(paths)
        return [name for name, path in zip(names, paths, strict=True) if not self._files.is_idle(name, found[path])]

    def blocked(self) -> dict[str, Obstruction]:
        """What could not be read when it was scanned and read last, without what raised, by path."""
        return self._blocked | self._files.unread()

    def watch(self, every_s: float) -> AsyncIterator[None]:
        """See `hints.looks`."""
        return looks(self._directory, every_s, GATHER_MS, _may_matter, recursive=True)


def _may_matter(change: watchfiles.Change, path: str) -> bool:
    """A log, or a new directory, in which files may lie before anybody is told of them."""
    return path.endswith(SUFFIXES) or (change is watchfiles.Change.added and os.path.isdir(path))
