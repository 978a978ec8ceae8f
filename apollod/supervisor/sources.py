"""Tasks that read the sources and feed the loop: the inbox, each watched directory, and its databases.

A batch is processed before the next one is read, and each source has a task of its own, so that a backlog in one does
not keep the others waiting.
"""

import os
import stat
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, Protocol

import anyio
import msgspec
from anyio.abc import TaskGroup

from apollod.adapters.sources.database_files import DatabaseFiles
from apollod.adapters.sources.foreign_database import SUFFIXES as DATABASE_SUFFIXES
from apollod.adapters.sources.quarantine import Quarantine
from apollod.adapters.sources.source_files import SourceFiles, Terms
from apollod.adapters.sources.unpack import obstruction
from apollod.adapters.sources.watched_places import DatabaseTree, Inbox, WatchedTree
from apollod.core import inputs as inp
from apollod.core.facts.intake.events import SourceMode
from apollod.core.facts.intake.state import Position
from apollod.curation.formats.table import READERS, ReaderTable, database_names
from apollod.curation.moments import Rules
from apollod.curation.stripping import Stripping
from apollod.errors import ConfigError, SourceLocked, SourceRefused, nearest
from apollod.supervisor.captures import ReadBatch, joining
from apollod.supervisor.config import Config
from apollod.supervisor.loop import Loop
from apollod.supervisor.sections import WatchSection, review_share

INBOX_RESCAN_S = 5.0  # between scans of the inbox, for files without a notification
RESCAN_S = 60.0  # between scans of a watched directory, for changes without a notification
TURNS = 16  # batches of one file before others have their turn


class _Place(Protocol):
    """A place of files."""

    def scan(self) -> list[str]: ...

    def blocked(self) -> dict[str, inp.Obstruction]: ...

    def watch(self, every_s: float) -> AsyncIterator[None]: ...


def refused(config: Config) -> ConfigError | None:
    """Error of the first configured source that cannot be read; None: none."""
    state = config.state_dir.resolve()
    seen: set[tuple[SourceMode, Path]] = set()
    for section in config.watch:
        place = section.directory.resolve()
        problem = _section_problem(section)
        if problem is None and place.is_relative_to(state):
            problem = (
                f"lies in the state directory {state}, where the daemon writes",
                "watch the directory in which the agents write; files to learn from belong into the inbox",
            )
        read = {(mode, place) for mode in modes_of(section)}
        if problem is None and read & seen:
            problem = "stands in two [[watch]] tables", "keep one of them"
        if problem is not None:
            return ConfigError(f"[[watch]] path {section.path}: {problem[0]}", problem[1])
        seen |= read
    return None


def _section_problem(section: WatchSection) -> tuple[str, str] | None:
    """Error of one table by itself, with the fix; None: none."""
    if (problem := format_problem(section.format)) is not None:
        return problem
    of_databases = section.format in database_names()
    if section.mode == "tail" and of_databases:
        return f"{section.format!r} is a format of databases", 'use mode = "poll"'
    if section.mode == "poll" and section.format != "auto" and not of_databases:
        return f"{section.format!r} is a format of files", 'use mode = "tail"'
    if section.mode == "tail" and _is_one_database(section):
        return f"{section.directory.name} is a database", 'use mode = "poll"'
    return None


def format_problem(format: str) -> tuple[str, str] | None:
    """Error in the name of a format, with the fix; None: none."""
    known = ("auto", *(reader.name for reader in READERS), *database_names())
    if format in known:
        return None
    return f"there is no format {format!r}", f"did you mean {nearest(format, known)!r}? one of {', '.join(known)}"


def _is_one_database(section: WatchSection) -> bool:
    return section.directory.suffix in DATABASE_SUFFIXES and not section.directory.is_dir()


class _Source(NamedTuple):
    """A place that is scanned, and its mode."""

    mode: SourceMode
    path: str


def read_sources(config: Config, loop: Loop, tasks: TaskGroup) -> None:
    """Begin to read all sources of the configuration."""
    read = {_Source("inbox", str(config.inbox_dir))}
    tasks.start_soon(_read_inbox, config, loop)
    for section in config.watch:
        modes = modes_of(section)
        if "tail" in modes:
            tasks.start_soon(_read_watched, config, section, loop)
        if "poll" in modes:
            tasks.start_soon(_poll, config, section, loop)
        read |= {_Source(mode, str(section.directory)) for mode in modes}
    for left in {_Source(one.mode, one.place) for one in loop.state.intake.blocked.values()} - read:
        loop.post(inp.PlaceLooked(left.mode, left.path, {}))


def modes_of(section: WatchSection) -> tuple[SourceMode, ...]:
    """Modes for the path: files, databases, or both."""
    if section.mode != "auto":
        return (section.mode,)
    if _is_one_database(section) or section.format in database_names():
        return ("poll",)
    return ("tail", "poll") if section.format == "auto" else ("tail",)


async def _read_inbox(config: Config, loop: Loop) -> None:
    rules = Rules(
        models=(config.engine.served_name,), context_tokens=config.trainer.max_tokens,
        preferences=config.preferences.rules(),
    )  # fmt: skip
    terms = Terms(
        rules, record_bytes=config.inbox.max_line_bytes, near_duplicate=config.inbox.near_duplicate,
        hold=review_share(config.inbox.review), learn=config.inbox.learn,
    )  # fmt: skip
    inbox = Inbox(config.inbox_dir, config.state_dir / "quarantine", terms, own=own_logs())
    with closing(inbox):
        source = _Source("inbox", str(config.inbox_dir))
        await _read(inbox, source, joining(config, inbox.read_batch), INBOX_RESCAN_S, loop)


async def _read_watched(config: Config, section: WatchSection, loop: Loop) -> None:
    files = SourceFiles(
        Quarantine(config.state_dir / "quarantine"), terms_of(config, section), ReaderTable.of(section.format),
        own=own_logs(),
    )  # fmt: skip
    with closing(files):
        tree = WatchedTree(section.directory, files, config.state_dir)
        source = _Source("tail", str(section.directory))
        await _read(tree, source, joining(config, files.read_batch), RESCAN_S, loop)


async def _poll(config: Config, section: WatchSection, loop: Loop) -> None:
    quarantine = Quarantine(config.state_dir / "quarantine")
    named = "tail" not in modes_of(section) and section.directory.is_file()
    files = DatabaseFiles(quarantine, terms_of(config, section), section.format, named)
    tree = DatabaseTree(section.directory, files, config.state_dir)
    source = _Source("poll", str(section.directory))
    await _read(tree, source, joining(config, files.read_batch), section.poll_s, loop)


def own_logs() -> frozenset[tuple[int, int]]:
    """Device and inode of the files to which this process writes its log."""
    said = [os.fstat(fd) for fd in (1, 2)]
    return frozenset((one.st_dev, one.st_ino) for one in said if stat.S_ISREG(one.st_mode))


def terms_of(config: Config, section: WatchSection) -> Terms:
    """Terms for reading the logs of a watched directory."""
    rules = Rules(
        models=section.models or (config.engine.served_name,),
        sidechains=section.sidechains,
        context_tokens=min(section.context_tokens, config.trainer.max_tokens),
        stripping=Stripping(section.strip, section.strip_patterns),
        preferences=config.preferences.rules(),
    )
    return Terms(
        rules, section.tier, config.inbox.max_line_bytes, section.settle_s, config.inbox.near_duplicate,
        review_share(section.review), section.learn,
    )  # fmt: skip


async def _read(place: _Place, source: _Source, read_batch: ReadBatch, every_s: float, loop: Loop) -> None:
    """Feed new lines to the loop, one batch at a time."""
    positions = loop.state.intake.sources
    obstructions = _Obstructions(source, loop)
    async for _ in place.watch(every_s):
        obstructions.begin()
        try:
            waiting = await anyio.to_thread.run_sync(place.scan)
        except OSError as error:
            await obstructions.add(source.path, error)
            await obstructions.end({})
            continue
        while waiting and not loop.state.daemon.stopping:
            more = []
            for path in waiting:
                try:
                    if await _turn(path, read_batch, positions, loop):
                        more.append(path)
                except (OSError, SourceRefused) as error:
                    # One file that cannot be read, or a full disk in quarantine: nothing of it was taken; it is looked
                    # at again later.
                    await obstructions.add(path, error)
            waiting = more
        if not loop.state.daemon.stopping:
            await obstructions.end(place.blocked())


class _Obstructions:
    """Reports unreadable paths of a place to the loop: each when it is met, all of them at the end of a scan."""

    def __init__(self, source: _Source, loop: Loop) -> None:
        self._source = source
        self._loop = loop
        self._met: dict[str, inp.Obstruction] = {}
        self._locked: dict[str, float] = {}
        """time at which a lock was first met"""

    def begin(self) -> None:
        """Begin a scan."""
        self._met = {}

    async def add(self, path: str, error: Exception) -> None:
        """Note the error of reading `path`."""
        why = obstruction(error, path)
        if isinstance(error, SourceLocked):
            since = self._locked.setdefault(path, time.monotonic())
            why = msgspec.structs.replace(why, passing_s=time.monotonic() - since)
        self._met[path] = why
        known = self._loop.state.intake.blocked.get(path)
        if known is None or known.reason != why.reason:
            await self._submit({path: why}, complete=False)

    async def end(self, found: Mapping[str, inp.Obstruction]) -> None:
        """End the scan; `found`: unreadable paths besides those met."""
        self._locked = {path: since for path, since in self._locked.items() if path in self._met}
        blocked = {**found, **self._met}
        known = self._loop.state.intake.blocked.values()
        if blocked or any((one.mode, one.place) == self._source for one in known):
            await self._submit(blocked, complete=True)

    async def _submit(self, blocked: dict[str, inp.Obstruction], complete: bool) -> None:
        await self._loop.submit(inp.PlaceLooked(self._source.mode, self._source.path, blocked, complete))


async def _turn(path: str, read_batch: ReadBatch, positions: Mapping[str, Position], loop: Loop) -> bool:
    """Read some batches of one file; True if there may be more."""
    for _ in range(TURNS):
        if loop.state.daemon.stopping:
            return False
        batch = await anyio.to_thread.run_sync(read_batch, path, positions)
        if batch is None:
            return False
        await loop.submit(inp.LinesRead(batch, frozenset()))
    return True
