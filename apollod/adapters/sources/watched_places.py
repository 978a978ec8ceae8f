"""Places that are watched: the inbox, directories of logs that agents write by themselves, databases of agents.

Rule: notifications of changes are only hints. They say where to look soon; a regular scan finds what they missed, and
replaces them where there are none (no such directory, no watches left). A scan covers the whole directory, its
subdirectories too except in the inbox, and costs a stat of each file. For changes inside a database there is no
notification, so it is polled; while nothing was written that costs two stats.
"""

import os
import stat
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing
from pathlib import Path

import anyio
import watchfiles
from watchfiles._rust_notify import WatchfilesRustInternalError

from apollod.adapters.sources.database_files import DatabaseFiles
from apollod.adapters.sources.foreign_database import SUFFIXES as DATABASE_SUFFIXES
from apollod.adapters.sources.foreign_database import is_database
from apollod.adapters.sources.quarantine import Quarantine
from apollod.adapters.sources.source_files import LINES_SUFFIXES, SUFFIXES, SourceFiles, Terms, printable
from apollod.adapters.sources.unpack import NO_DATABASE, OURS, entry_obstruction, obstruction
from apollod.core.facts.intake.state import Position
from apollod.core.inputs import Batch, Obstruction
from apollod.curation.formats.table import ReaderTable

INBOX_GATHER_MS = 200  # changes are gathered this long
TREE_GATHER_MS = 500
SEARCH_S = 60.0  # between two searches for new databases in a directory
LOOK_S = 1.0  # a thread waits for notifications at most this long; a stop waits for that thread

Matters = Callable[[watchfiles.Change, str], bool]
"""(kind of change, path) -> True if it is worth a scan"""


class Inbox:
    """The inbox directory: files that are put there are learned. `clock` and `own`: see `SourceFiles`."""

    def __init__(
        self,
        directory: Path,
        quarantine: Path,
        terms: Terms = Terms(),  # noqa: B008
        clock: Callable[[], float] = time.time,
        formats: ReaderTable | None = None,
        own: frozenset[tuple[int, int]] = frozenset(),
    ) -> None:
        self._directory = directory
        kept_in = Quarantine(quarantine)
        kept_in.clear_unfinished()
        self._files = SourceFiles(kept_in, terms, formats, clock, own)
        self._blocked: dict[str, Obstruction] = {}

    def scan(self) -> list[str]:
        """Return paths of candidate files, sorted by name; links, pipes and names that begin with a dot are skipped."""
        place, real, names = str(self._directory), os.path.realpath(self._directory), list[str]()
        self._blocked = {}
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    why = entry_obstruction(entry, LINES_SUFFIXES, real)
                    if why is not None:
                        self._blocked[printable(entry.path)] = why
                    elif entry.name.endswith(LINES_SUFFIXES) and entry.is_file(follow_symlinks=False):
                        names.append(entry.name)
        except FileNotFoundError as error:
            self._blocked = {printable(place): obstruction(error, place)}
            return []
        return self._files.found([str(self._directory / name) for name in sorted(names) if not name.startswith(".")])

    def blocked(self) -> dict[str, Obstruction]:
        return self._blocked | self._files.unread()

    def read_batch(self, path: str, known: Mapping[str, Position]) -> Batch | None:
        return self._files.read_batch(path, known)

    def watch(self, every_s: float = 2.0) -> AsyncIterator[None]:
        return looks(self._directory, every_s, INBOX_GATHER_MS, watchfiles.DefaultFilter(), recursive=False)

    def close(self) -> None:
        self._files.close()


class WatchedTree:
    """One `[[watch]]` directory of logs, with all its subdirectories. `excluded`: directory that apollod itself writes;
    nothing below it is read."""

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
        return looks(self._directory, every_s, TREE_GATHER_MS, _may_matter, recursive=True)


def _may_matter(change: watchfiles.Change, path: str) -> bool:
    """True for a log, or for a new directory: files in it may precede its notifications."""
    return path.endswith(SUFFIXES) or (change is watchfiles.Change.added and os.path.isdir(path))


class DatabaseTree:
    """One `[[watch]]` path: a database, or a directory that is searched for databases. `excluded`: see `WatchedTree`.
    `clock`: seconds, only going up."""

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
        walk = TreeWalk(directory, DATABASE_SUFFIXES, self._excluded)
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


class TreeWalk:
    """Walks a directory tree: regular files by suffix, without names that begin with a dot. Nothing below `excluded` (a
    real path) is read. Links are not followed, pipes and devices not opened."""

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


async def looks(
    directory: Path, every_s: float, gather_ms: int, matters: Matters, recursive: bool
) -> AsyncIterator[None]:
    """Yield at once, soon after a change (changes are gathered for `gather_ms`), and at least every `every_s`
    seconds."""
    yield
    last = anyio.current_time()
    while True:
        changes = watchfiles.awatch(
            directory,
            debounce=gather_ms,
            rust_timeout=int(min(LOOK_S, every_s) * 1000),
            yield_on_timeout=True,
            recursive=recursive,
            watch_filter=matters,
        )
        try:
            async with aclosing(changes):
                async for changed in changes:
                    if changed or anyio.current_time() - last >= every_s:
                        last = anyio.current_time()
                        yield
        except* (OSError, WatchfilesRustInternalError):  # in a group: it comes out of a task group of watchfiles
            pass
        await anyio.sleep(every_s)
        last = anyio.current_time()
        yield
