"""Reads a file or directory as the daemon would, without learning it: writes nothing, remembers nothing."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from apollod.adapters.sources.foreign_database import SUFFIXES as DATABASE_SUFFIXES
from apollod.adapters.sources.foreign_database import is_database, open_database
from apollod.adapters.sources.identity import open_regular, read_from
from apollod.adapters.sources.record_stream import Folding
from apollod.adapters.sources.source_files import HEAD_BYTES, SUFFIXES, Terms
from apollod.adapters.sources.unpack import (
    ARCHIVE_SUFFIX,
    DAMAGE,
    DOCUMENT_SUFFIX,
    WHOLE_SUFFIXES,
    Read,
    bare,
    unknown_log,
    unpacked,
)
from apollod.core.facts.intake.events import Evidence
from apollod.curation.conversation import Moment, Remark
from apollod.curation.formats.reader import Bad, Cursor, Found, Item
from apollod.curation.formats.session_rows import SessionCursor, read_session
from apollod.curation.formats.table import ReaderTable, database_names, recognise_database
from apollod.curation.moments import Gathered, Learned, gathered
from apollod.curation.signals.cues import evidence_of
from apollod.errors import SourceRefused

ITEMS = 256
UNKNOWN = "unknown"
"""Format name for files that no reader recognises"""


class Tried(NamedTuple):
    """An example, or a record that would be refused."""

    path: str
    line: int
    learned: Learned | None
    reason: str = ""
    """reason for quarantine, "" for an example"""


class Shown(NamedTuple):
    """A signal that would be recorded."""

    path: str
    line: int
    example: str
    """id of the example that learns the answer, of those read; empty: none"""
    evidence: Evidence


class Trial:
    """Reads files as a source with these terms would; iterate over `read`, then use the other attributes."""

    def __init__(self, terms: Terms, format_: str = "auto") -> None:
        """`format_`: of files or of databases; only this kind is read then. Raises SourceRefused for an unknown
        format."""
        of_databases = format_ in database_names()
        self._terms = terms
        self._database_format = format_ if of_databases else "auto"
        self._formats = ReaderTable() if of_databases else ReaderTable.of(format_)
        self._of_inbox = ReaderTable() if format_ == "auto" else self._formats
        self.formats: dict[str, int] = {}
        """number of files by format name"""
        self.records = 0
        """number of lines or records read"""
        self.counts = Counter[str]()
        """counts of input without an item, as in `Folded.counts`"""
        self.unlearned = Counter[str]()
        """answers of sessions that give no example, by reason"""
        self.answers: dict[str, Counter[str]] = {}
        """by file: number of answers by reason for not learning them, `learned` for those that become examples"""
        self.signals: dict[str, Shown] = {}
        """signals by their ids"""
        self._learners: dict[str, str] = {}
        """ids of examples by the keys of the answers that they learn"""

    def read(self, path: Path) -> Iterator[Tried]:
        """Yield everything in a file, or in all files below a directory. Raises SourceRefused for an unreadable
        path."""
        for file in files_below(path):
            yield from self._read_file(file, alone=not path.is_dir())

    def _read_file(self, path: str, alone: bool) -> Iterator[Tried]:
        if _is_database(path):
            yield from self._read_database(path, alone)
            return
        try:
            file = open_regular(path)
        except OSError as error:
            raise SourceRefused(f"{path} cannot be read: {error.strerror}", "look at its owner and mode") from error
        if file is None:
            raise SourceRefused(f"{path} is no file, or is gone", "name a file or a directory of logs")
        with file:
            content = _content(file, path)
            try:
                yield from self._fold(path, content, alone)
            except DAMAGE as error:
                yield Tried(path, 0, None, f"the compressed file is cut off or damaged ({error})")

    def _read_database(self, path: str, alone: bool) -> Iterator[Tried]:
        with open_database(path) as opened:
            read = recognise_database(opened.schema(), self._database_format)
            if read is None and not alone:
                return
            if read is None:
                raise SourceRefused(
                    f"{path} has not the tables of an agent that this apollod knows", "see docs/formats-databases.md"
                )
            reader, queries = read
            self.formats[reader.name] = self.formats.get(reader.name, 0) + 1
            for session in opened.sessions(queries):
                cursor, more = SessionCursor(), True
                while more:
                    raw = opened.read(queries, session.id, cursor, self._terms.record_bytes)
                    found = read_session(reader, raw, cursor, self._terms.record_bytes, ITEMS, settle=True)
                    yield from self._tried(f"{path}#{session.id}", found.items)
                    self.counts.update(found.counts)
                    more, cursor = found.more and found.cursor != cursor, found.cursor
                self.records += found.line

    def _tried(self, path: str, items: Iterable[Item]) -> Iterator[Tried]:
        for item in items:
            if isinstance(item, Bad):
                if not item.more:
                    yield Tried(path, item.line, None, item.reason)
                continue
            if isinstance(item, Remark):
                self._note(path, item, Gathered())
                continue
            found = gathered(item, self._terms.rules)
            self._tell(path, found)
            if isinstance(item, Moment):
                self._note(path, item, found)
                self.counts.update({f"dropped: {reason}": count for reason, count in found.unlearned.items()})
                self.unlearned.update(found.unlearned if found.found else {})
            for learned in found.learned:
                yield Tried(path, learned.line or item.line, learned)
            for reason in found.unlearned if isinstance(item, Found) else ():
                yield Tried(path, item.line, None, reason)

    def _tell(self, path: str, found: Gathered) -> None:
        own = self.answers.setdefault(path, Counter())
        if found.found:
            own.update(found.unlearned)
            own["learned"] += found.found - sum(found.unlearned.values())

    def _note(self, path: str, item: Moment | Remark, found: Gathered) -> None:
        """Record the evidence about answers in an item, each once."""
        for learned in found.learned:
            for one in learned.taught.responses:
                self._learners.setdefault(one.key, learned.record.id)
        for evidence in evidence_of(item, self._terms.rules):
            shown = Shown(path, item.line, self._learners.get(evidence.answer, ""), evidence)
            self.signals.setdefault(evidence.id, shown)

    def _fold(self, path: str, content: Callable[[], Read], alone: bool) -> Iterator[Tried]:
        name = bare(path)
        head = content()(HEAD_BYTES)[:HEAD_BYTES]
        kind = self._formats.unread(name, head)
        if kind and not alone and (name.endswith(DOCUMENT_SUFFIX) or path.endswith(ARCHIVE_SUFFIX)):
            return  # programs keep all kinds of things in documents
        if kind:
            self.formats[UNKNOWN] = self.formats.get(UNKNOWN, 0) + 1
            yield Tried(path, 0, None, unknown_log(kind, content()).reason)
            return
        reader = (self._of_inbox if alone else self._formats).recognise(name, head)
        self.formats[reader.name] = self.formats.get(reader.name, 0) + 1
        folding = Folding(reader, content(), Cursor(), self._terms.record_bytes, complete=True)
        while (items := folding.next(ITEMS)) is not None:
            yield from self._tried(path, items)
        self.records += folding.cursor.line
        self.counts.update(folding.counts)


def _is_database(path: str) -> bool:
    try:
        return is_database(path)
    except OSError:
        return False


def files_below(path: Path) -> list[str]:
    """The file itself, or all files below a directory that may be logs, sorted by path. Raises SourceRefused if there
    are none."""
    if not path.is_dir():
        if not path.exists():
            raise SourceRefused(f"{path} does not exist", "name a file or a directory of logs")
        return [str(path)]
    found = [
        os.path.join(directory, name)
        for directory, _, names in os.walk(path)
        for name in names
        if name.endswith((*SUFFIXES, *DATABASE_SUFFIXES))
        and not name.startswith(".")
        and not os.path.islink(os.path.join(directory, name))
    ]
    if not found:
        raise SourceRefused(
            f"there is no {' or '.join((*SUFFIXES, *DATABASE_SUFFIXES))} below {path}",
            "name the directory with the logs",
        )
    return sorted(found)


def _content(file: BinaryIO, path: str) -> Callable[[], Read]:
    """Return a function that opens the whole content, from the beginning at each call."""
    if not path.endswith(WHOLE_SUFFIXES):
        return lambda: read_from(file, 0)

    def content() -> Read:
        file.seek(0)
        return unpacked(file, path)

    return content
