"""The tables of log formats and of agents' databases. To add one, write a file beside this one and a line in it. A file
that no reader can read is recognised by its first bytes, so that nothing of it is learned by mistake."""

import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from apollod.curation.formats import atif, claude_code, codex, gemini, open_webui, otel, pi, qwen, sillytavern
from apollod.curation.formats.agents import (
    cline,
    copilot,
    cursor,
    droid,
    goose,
    hermes,
    inspect_log,
    kimi,
    opencode,
    vscode_chat,
)
from apollod.curation.formats.database_reader import DatabaseReader, Queries, Schema
from apollod.curation.formats.jsonl_records import ARRAY, ROWS, JsonlRecords
from apollod.curation.formats.reader import Cursor, Reader
from apollod.errors import SourceRefused

Unread = Literal["", "document", "unknown"]
"""Reason for not reading a file: it is one JSON value over several lines, or the log of an unknown agent"""
ROW_KEYS = frozenset({"messages", "conversations", "prompt", "instruction", "text", "chosen", "preferred_output"})
"""Every row that may be learned has at least one of these keys"""
ROWS_LOOKED_AT = 20
DOCUMENT_REASON = "it is one JSON document over several lines; write one object a line, for instance with `jq -c .`"
_DOCUMENT = re.compile(rb"\s*(?:\{\s*\n\s*\"(?:[^\"\\\n]|\\.)*\"\s*:|\[\s*\n)")
_KEY = re.compile(rb'"(%s)"\s*:' % "|".join(sorted(ROW_KEYS)).encode())


def is_document(head: bytes) -> bool:
    """True if the file begins like one JSON value written over several lines."""
    return _DOCUMENT.match(head) is not None


def has_rows(head: bytes) -> bool:
    """True if an early line may be a row of a data set. An incomplete line is judged by its keys."""
    lines = head.split(b"\n", ROWS_LOOKED_AT)
    for line in lines[:ROWS_LOOKED_AT]:
        try:
            row = msgspec.json.decode(line)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            if line is lines[-1] and _KEY.search(line):
                return True
            continue
        if isinstance(row, dict) and not ROW_KEYS.isdisjoint(row):
            return True
    return False


READERS: tuple[Reader, ...] = (
    qwen.READER,
    claude_code.READER,
    codex.READER,
    pi.READER,
    gemini.READER,
    gemini.DOCUMENT,
    sillytavern.READER,
    atif.READER,
    otel.READER,
    open_webui.READER,
    cline.READER,
    copilot.READER,
    vscode_chat.READER,
    vscode_chat.DOCUMENT,
    droid.READER,
    cursor.READER,
    goose.READER,
    kimi.READER,
    inspect_log.READER,
    inspect_log.DOCUMENT,
    *ROWS,
    ARRAY,
    JsonlRecords(),
)
"""In order of precedence; the last one takes files that no other recognises."""


DATABASES: tuple[DatabaseReader, ...] = (
    pi.DATABASE,
    hermes.DATABASE,
    opencode.DATABASE,
    open_webui.DATABASE,
    goose.DATABASE,
    cursor.DATABASE,
)


def database_names() -> tuple[str, ...]:
    """The allowed `format` names of a database."""
    return tuple(reader.name for reader in DATABASES)


def recognise_database(schema: Schema, format: str = "auto") -> tuple[DatabaseReader, Queries] | None:
    """The reader for a database with these tables, and its queries; None if no reader knows it."""
    for reader in DATABASES:
        if format in ("auto", reader.name) and (queries := reader.queries(schema)) is not None:
            return reader, queries
    return None


class _Recorded(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cursor's part of `source.consumed` beside offset and line."""

    format: str
    state: str = ""


class ReaderTable:
    """The readers by format, and the encoding of their cursors.

    A source stays with the reader that began it, even if another one would recognise it later: a state is only
    meaningful to its own reader.
    """

    def __init__(
        self, readers: Sequence[Reader] = READERS, chosen: Reader | None = None, watched: bool = False
    ) -> None:
        """`watched`: the files were not put there for learning, so files of unknown formats are not read, and bare
        texts are not learned."""
        readers = (
            [reader.without_texts() if isinstance(reader, JsonlRecords) else reader for reader in readers]
            if watched
            else readers
        )
        self.watched = watched
        self._readers = {reader.name: reader for reader in readers}
        self._chosen = chosen
        self._fallback = readers[-1]

    @classmethod
    def of(cls, format: str) -> "ReaderTable":
        """The table for a watched source with a configured format; `auto`: recognise it. Raises SourceRefused for an
        unknown format."""
        if format == "auto":
            return cls(watched=True)
        chosen = [reader for reader in READERS if reader.name == format]
        if not chosen:
            names = ", ".join(reader.name for reader in READERS)
            raise SourceRefused(f"there is no format {format!r}", f"use auto or one of {names}")
        return cls(READERS, chosen[0])

    def recognise(self, path: str, head: bytes) -> Reader:
        """The reader of a new source."""
        if self._chosen is not None:
            return self._chosen
        found = (reader for reader in self._readers.values() if reader.recognise(path, head))
        return next(found, self._fallback)

    def knows(self, path: str, head: bytes) -> bool:
        """True if a format was chosen, or a reader recognises the source."""
        return self._chosen is not None or any(r.recognise(path, head) for r in list(self._readers.values())[:-1])

    def unread(self, path: str, head: bytes) -> Unread:
        """The reason for not reading a new source at all; empty: read it."""
        if self._chosen is not None or self.knows(path, head):
            return ""
        if is_document(head):
            return "document"
        return "unknown" if self.watched and not has_rows(head) else ""

    def recorded(self, reader: Reader, cursor: Cursor) -> str:
        """The value for `source.consumed` beside offset and line.

        Empty for the last reader of the table without a state, for compatibility with journals from before other
        readers.
        """
        if reader is self._fallback and not cursor.state:
            return ""
        return msgspec.json.encode(_Recorded(reader.name, cursor.state)).decode()

    def resume(self, recorded: str, offset: int, line: int) -> tuple[Reader, Cursor]:
        """The reader of a source already begun, and its cursor. Raises SourceRefused if the table lacks that reader."""
        if not recorded:
            return self._fallback, Cursor(offset, line)
        try:
            known = msgspec.json.decode(recorded, type=_Recorded)
            return self._readers[known.format], Cursor(offset, line, known.state)
        except (msgspec.MsgspecError, KeyError) as error:
            raise SourceRefused(
                f"the journal says that the source is read as {recorded!r}, which this apollod does not know",
                "use the version of apollod that began to read it",
            ) from error
