"""Looks up what a journal knows of lines that were not given to its daemon yet; changes nothing."""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from apollod.adapters.journal.journal_file import reading
from apollod.adapters.journal.known_examples import bands_kind, examples_kind, names_of, responses_kind, signatures_of
from apollod.adapters.journal.late_index import Key, Kind
from apollod.core.inputs import Line
from apollod.core.intake.repeats import Known, bands


class KnownLines:
    """Made by `opened`, of the journal as it is then."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._examples = _recent(db, examples_kind())
        self._responses = _recent(db, responses_kind())
        self._bands = _recent(db, bands_kind())

    def tell(self, known: Known, lines: Iterable[Line], near: bool) -> None:
        """Tell `known` what concerns these lines. `near`: also texts that resemble theirs."""
        lines = list(lines)
        examples = self._find(examples_kind(), self._examples, {line.example for line in lines})
        keys = self._find(responses_kind(), self._responses, {one.key for line in lines for one in line.responses})
        names = dict(self._db.execute(*names_of(keys.values())))
        wanted = {band for line in lines if near and line.signature for band in bands(line.signature)}
        like = self._find(bands_kind(), self._bands, wanted)
        signed = dict(self._db.execute(*signatures_of(like.values())))
        known.tell(set(examples), {key: names[seq] for key, seq in keys.items()}, signed)

    def _find(self, kind: Kind[Key], recent: dict[Key, int], keys: set[Key]) -> dict[Key, int]:
        """Event by key, of those that are known."""
        found: dict[Key, int] = dict(self._db.execute(*kind.lookup(keys - recent.keys())))
        return found | {key: recent[key] for key in keys & recent.keys()}


def _recent(db: sqlite3.Connection, kind: Kind[Key]) -> dict[Key, int]:
    """What is not in the table of this kind yet."""
    return kind.by_key(db.execute(kind.recent))


@contextmanager
def opened(path: str | Path) -> Iterator[KnownLines]:
    """Of this journal. Raises JournalError."""
    with reading(path) as db:
        yield KnownLines(db)
