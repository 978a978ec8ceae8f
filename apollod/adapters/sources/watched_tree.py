"""A watched directory with all below it: logs that agents write and nobody drops.

Law: a scan looks at everything and costs a stat of each file. Links are not followed, pipes and devices not opened.
"""

import os
import stat
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import watchfiles

from apollod.adapters.sources.hints import looks
from apollod.adapters.sources.source_files import SUFFIXES, SourceFiles

GATHER_MS = 500  # changes are gathered this long


class WatchedTree:
    """One `[[watch]]` directory. `excluded`: below it nothing is read, because it is written by whoever reads."""

    def __init__(self, directory: Path, files: SourceFiles, excluded: Path) -> None:
        self._directory = directory
        self._files = files
        self._excluded = os.path.realpath(excluded)

    def scan(self) -> list[str]:
        """Files that may have something new, by path. Raises OSError where the directory itself cannot be read."""
        found = dict(files_in(str(self._directory), SUFFIXES, self._excluded))
        paths = sorted(found)
        names = self._files.found(paths)
        return [name for name, path in zip(names, paths, strict=True) if not self._files.is_idle(name, found[path])]

    def watch(self, every_s: float) -> AsyncIterator[None]:
        """See `hints.looks`."""
        return looks(self._directory, every_s, GATHER_MS, _may_matter, recursive=True)


def files_in(
    directory: str, suffixes: tuple[str, ...], excluded: str = "", top: bool = True
) -> Iterator[tuple[str, os.stat_result]]:
    """Regular files in a directory and all below it but `excluded` (a real path), by suffix; not what begins with a
    dot. Raises OSError where the directory itself cannot be read."""
    if os.path.realpath(directory) == excluded:
        return
    below = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    below.append(entry.path)
                elif entry.name.endswith(suffixes) and not entry.name.startswith("."):
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode):
                        yield entry.path, status
    except OSError:
        if top:
            raise
        return  # it went, or may not be read: what is in it is not there
    for path in below:
        yield from files_in(path, suffixes, excluded, top=False)


def _may_matter(change: watchfiles.Change, path: str) -> bool:
    """A log, or a new directory, in which files may lie before anybody is told of them."""
    return path.endswith(SUFFIXES) or (change is watchfiles.Change.added and os.path.isdir(path))
