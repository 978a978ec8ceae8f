"""The tasks that feed the loop with what sources have: the inbox, each watched directory, and its databases.

A batch is taken before the next one is read, and each source has a task of its own, so that a backlog in one does not
keep the others waiting.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import closing
from typing import Protocol

import anyio
import structlog
from anyio.abc import TaskGroup

from apollod.adapters.sources.database_files import DatabaseFiles
from apollod.adapters.sources.database_tree import DatabaseTree
from apollod.adapters.sources.foreign_database import SUFFIXES as DATABASE_SUFFIXES
from apollod.adapters.sources.inbox import Inbox
from apollod.adapters.sources.quarantine import Quarantine
from apollod.adapters.sources.source_files import SourceFiles, Terms
from apollod.adapters.sources.watched_tree import WatchedTree
from apollod.core import inputs as inp
from apollod.core.intake.state import Position
from apollod.curation.databases.database_table import database_names
from apollod.curation.formats.table import ReaderTable
from apollod.curation.moments import Rules
from apollod.curation.stripping import Stripping
from apollod.errors import ApolloError, ConfigError, SourceRefused
from apollod.supervisor.captures import ReadBatch, joining
from apollod.supervisor.config import Config, WatchSection, review_share
from apollod.supervisor.loop import Loop

RESCAN_S = 60.0  # of a watched directory: for what no notification told
TURNS = 16  # batches of one file before the others have their turn

log = structlog.get_logger()


class _Place(Protocol):
    """Where files are found."""

    def scan(self) -> list[str]: ...

    def watch(self, every_s: float) -> AsyncIterator[None]: ...


def refused(config: Config) -> ConfigError | None:
    """Why a source of the configuration cannot be read."""
    state = config.state_dir.resolve()
    for section in config.watch:
        try:
            if section.format not in database_names():
                ReaderTable.of(section.format)
        except SourceRefused as error:
            hint = f"{error.hint}, or of databases {', '.join(database_names())}"
            return ConfigError(f"[[watch]] {section.path}: {error}", hint)
        if section.directory.resolve().is_relative_to(state):
            return ConfigError(
                f"[[watch]] path {section.path} lies in the state directory {state}, where the daemon writes",
                "watch the directory in which the agents write; files to learn from belong into the inbox",
            )
    return None


def read_sources(config: Config, loop: Loop, tasks: TaskGroup) -> None:
    """Begin to read all sources of the configuration."""
    tasks.start_soon(_read_inbox, config, loop)
    for section in config.watch:
        if not _is_of_databases(section):
            tasks.start_soon(_read_watched, config, section, loop)
        if section.format in ("auto", *database_names()):
            tasks.start_soon(_poll, config, section, loop)


def _is_of_databases(section: WatchSection) -> bool:
    """Is it one database, or a directory of which only databases are to be read?"""
    one = section.directory.suffix in DATABASE_SUFFIXES and not section.directory.is_dir()
    return one or section.format in database_names()


async def _read_inbox(config: Config, loop: Loop) -> None:
    rules = Rules(models=(config.engine.served_name,), context_tokens=config.trainer.max_tokens)
    terms = Terms(
        rules, record_bytes=config.inbox.max_line_bytes, near_duplicate=config.inbox.near_duplicate,
        hold=review_share(config.inbox.review),
    )  # fmt: skip
    inbox = Inbox(config.inbox_dir, config.state_dir / "quarantine", terms)
    with closing(inbox):
        await _read(inbox, joining(config, inbox.read_batch), config.inbox.rescan_s, loop)


async def _read_watched(config: Config, section: WatchSection, loop: Loop) -> None:
    files = SourceFiles(
        Quarantine(config.state_dir / "quarantine"), terms_of(config, section), ReaderTable.of(section.format)
    )
    with closing(files):
        tree = WatchedTree(section.directory, files, config.state_dir)
        await _read(tree, joining(config, files.read_batch), RESCAN_S, loop)


async def _poll(config: Config, section: WatchSection, loop: Loop) -> None:
    quarantine = Quarantine(config.state_dir / "quarantine")
    named = _is_of_databases(section)
    files = DatabaseFiles(quarantine, terms_of(config, section), section.format, named and section.directory.is_file())
    tree = DatabaseTree(section.directory, files, config.state_dir)
    await _read(tree, joining(config, files.read_batch), section.poll_s, loop)


def terms_of(config: Config, section: WatchSection) -> Terms:
    """How the logs of a watched directory are read."""
    rules = Rules(
        models=section.models or (config.engine.served_name,),
        sidechains=section.sidechains,
        context_tokens=config.trainer.max_tokens,
        stripping=Stripping(section.strip, section.strip_patterns),
    )
    return Terms(
        rules, section.tier, config.inbox.max_line_bytes, section.settle_s, config.inbox.near_duplicate,
        review_share(section.review),
    )  # fmt: skip


async def _read(place: _Place, read_batch: ReadBatch, every_s: float, loop: Loop) -> None:
    """Feed what is found to the loop, one batch at a time."""
    positions = loop.state.intake.sources
    refused = dict[str, str]()
    async for _ in place.watch(every_s):
        try:
            waiting = await anyio.to_thread.run_sync(place.scan)
        except OSError as error:
            _say(refused, str(error.filename), error)
            continue
        while waiting and not loop.state.daemon.stopping:
            more = []
            for path in waiting:
                try:
                    if await _turn(path, read_batch, positions, loop):
                        more.append(path)
                    refused.pop(path, None)
                except (OSError, SourceRefused) as error:
                    # One file that cannot be read, or a full disk in quarantine: nothing of it was taken; it is looked
                    # at again later.
                    _say(refused, path, error)
            waiting = more


async def _turn(path: str, read_batch: ReadBatch, positions: Mapping[str, Position], loop: Loop) -> bool:
    """Some batches of one file; is there more?"""
    for _ in range(TURNS):
        if loop.state.daemon.stopping:
            return False
        batch = await anyio.to_thread.run_sync(read_batch, path, positions)
        if batch is None:
            return False
        await loop.submit(inp.LinesRead(batch, frozenset()))
    return True


def _say(refused: dict[str, str], path: str, error: Exception) -> None:
    """Say why a file is not read; once, as long as the reason stays."""
    if refused.get(path) != str(error):
        refused[path] = str(error)
        log.warning(
            "source.unreadable", path=path, error=error.line() if isinstance(error, ApolloError) else str(error)
        )
