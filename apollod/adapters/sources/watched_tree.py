"""A watched directory with all below it: logs that agents write and nobody drops.

Law: hints are not trusted. Notifications say where to look soon; a slow scan of everything finds what they missed, and
costs a stat of each file. Links are not followed, pipes and devices not opened.
"""

import os
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path

import anyio
import watchfiles
from watchfiles._rust_notify import WatchfilesRustInternalError

from apollod.adapters.sources.source_files import SUFFIXES, SourceFiles

HINT_MS = 500  # changes are gathered this long
LOOK_MS = 1000  # a thread waits for notifications at most this long; a stop waits for that thread


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

    async def watch(self, every_s: float) -> AsyncIterator[None]:
        """Yields at once, soon after something changed, and at least every `every_s` seconds."""
        yield
        last = anyio.current_time()
        while True:
            changes = watchfiles.awatch(
                self._directory, debounce=HINT_MS, rust_timeout=LOOK_MS, yield_on_timeout=True, watch_filter=_may_matter
            )
            try:
                async with aclosing(changes):
                    async for changed in changes:
                        if changed or anyio.current_time() - last >= every_s:
                            last = anyio.current_time()
                            yield
            except (OSError, WatchfilesRustInternalError):  # it is gone, or there are no watches left
                await anyio.sleep(every_s)
                yield


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
