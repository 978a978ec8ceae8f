"""A file, a directory or a database that is read once, from its beginning to its present end.

Nothing is waited for: the last turn counts as finished, a document as complete. Positions are kept under names that end
with a mark, so that they differ from those of a watched source. Blocking: the caller uses a worker thread, one call at
a time.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from apollod.adapters.sources.database_files import DatabaseFiles
from apollod.adapters.sources.foreign_database import is_database
from apollod.adapters.sources.identity import open_regular
from apollod.adapters.sources.quarantine import Quarantine
from apollod.adapters.sources.source_files import HEAD_BYTES, UNENDED_S, SourceFiles, Terms
from apollod.adapters.sources.unpack import DOCUMENT_SUFFIX
from apollod.adapters.sources.watched_places import DatabaseTree, WatchedTree
from apollod.core.facts.intake.state import Position
from apollod.core.inputs import Batch, Obstruction
from apollod.curation.formats.table import ReaderTable, database_names
from apollod.errors import SourceRefused

ReadBatch = Callable[[str, Mapping[str, Position]], Batch | None]


class Part(NamedTuple):
    """A file of the source. `size`: bytes on disk."""

    path: str
    size: int
    read_batch: ReadBatch


class WholeSource:
    """One file, directory or database. `mark`: begins with "@"; `format`: as in `[[watch]]`; `excluded`: nothing below
    it is read; `own`: see `SourceFiles`."""

    def __init__(
        self, path: Path, mark: str, quarantine: Quarantine, terms: Terms, format: str, excluded: Path,
        own: frozenset[tuple[int, int]] = frozenset(),
    ) -> None:  # fmt: skip
        terms = msgspec.structs.replace(terms, settle_s=0.0)
        self._path = path
        self._mark = mark
        of_databases, alone = format in database_names(), not path.is_dir()
        formats = ReaderTable() if of_databases else ReaderTable.of(format)
        self._formats = formats
        self._files = SourceFiles(quarantine, terms, formats, clock=_later, own=own)
        self._databases = DatabaseFiles(quarantine, terms, format if of_databases else "auto", named=alone)
        self._tree = None if of_databases else WatchedTree(path, self._files, excluded)
        self._database_tree = (
            DatabaseTree(path, self._databases, excluded) if of_databases or format == "auto" else None
        )
        self._alone = alone

    def scan(self) -> list[Part]:
        """Return all parts, by path. Raises OSError, or SourceRefused, if the path itself cannot be read."""
        if self._alone:
            path = str(self._path)
            if self._database_tree is not None and is_database(path):
                return [self._part(name, self._databases.read_batch) for name in self._databases.found([path])]
            file = open_regular(path)
            if file is None:
                raise SourceRefused(f"{path} is no file, or is gone", "name a file or a directory of logs")
            with file:
                if path.endswith(DOCUMENT_SUFFIX) and not self._formats.knows(path, file.read(HEAD_BYTES)):
                    raise SourceRefused(f"{path} is not a document of a known format", "docs/formats.md lists them")
                return [self._part(name, self._files.read_batch) for name in self._files.found([path])]
        parts: list[Part] = []
        if self._tree is not None:
            parts += [self._part(path, self._files.read_batch) for path in self._tree.scan()]
        if self._database_tree is not None:
            parts += [self._part(path, self._databases.read_batch) for path in self._database_tree.scan()]
        return sorted(parts, key=lambda part: part.path)

    def read_batch(self, part: Part, known: Mapping[str, Position]) -> Batch | None:
        """See `SourceFiles.read_batch`; `known`: all positions of the journal."""
        batch = part.read_batch(part.path, _Unmarked(known, self._mark))
        if batch is None:
            return None
        replaces = _marked(batch.replaces, self._mark) if batch.replaces else ""
        return msgspec.structs.replace(batch, source=_marked(batch.source, self._mark), replaces=replaces)

    def blocked(self) -> dict[str, Obstruction]:
        """Unreadable paths that were found, except those that raised an error."""
        found = {} if self._tree is None or self._alone else self._tree.blocked()
        if self._database_tree is not None and not self._alone:
            found = {**self._database_tree.blocked(), **found}
        return {**found, **self._files.unread()}

    def close(self) -> None:
        self._files.close()

    @staticmethod
    def _part(path: str, read_batch: ReadBatch) -> Part:
        try:
            return Part(path, os.stat(path).st_size, read_batch)
        except OSError:  # gone since it was found, or its name is not UTF-8
            return Part(path, 0, read_batch)


def _later() -> float:
    """A time so far ahead that every present file counts as settled."""
    return time.time() + UNENDED_S


class _Unmarked(Mapping[str, Position]):
    """Positions of names with a mark, by the names without it."""

    def __init__(self, known: Mapping[str, Position], mark: str) -> None:
        self._known = known
        self._mark = mark

    def __getitem__(self, file: str) -> Position:
        position = self._known[file + self._mark]
        return msgspec.structs.replace(position, source=position.source.replace(self._mark, "", 1))

    def __iter__(self) -> Iterator[str]:
        return (file.removesuffix(self._mark) for file in self._known if file.endswith(self._mark))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _marked(source: str, mark: str) -> str:
    """Put the mark after the file's name: the suffix counts how often the file was rewritten (`Position.file`)."""
    file, tilde, times = source.partition("~")
    return f"{file}{mark}{tilde}{times}"
