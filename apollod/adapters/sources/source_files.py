"""Reads files of sources: the complete records of each, exactly once.

Rule: no decisions and no state that matters. The journal keeps where reading goes on (`source.consumed`, appended in
one transaction with the results of the lines); everything here is a cache. A file is identified by device, inode and a
hash of its beginning, not by its name, so that a rename changes nothing. Blocking: the caller uses a worker thread, one
`read_batch` at a time.
"""

import os
import time
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO

import msgspec

from apollod.adapters.sources.identity import Candidate, identify, open_regular, read_from, tail_digest
from apollod.adapters.sources.quarantine import Quarantine
from apollod.adapters.sources.record_stream import CHUNK_BYTES, LINE_BYTES_MAX, Folding, RecordStream
from apollod.adapters.sources.unpack import (
    ARCHIVE_SUFFIX,
    DAMAGE,
    DOCUMENT_SUFFIX,
    UNENDED,
    WHOLE_SUFFIXES,
    Read,
    bare,
    unknown_log,
    unpacked,
)
from apollod.core.facts.intake.events import Learn, Tier
from apollod.core.facts.intake.state import Position
from apollod.core.inputs import Batch, Line, Obstruction
from apollod.core.kernel.composing import composed
from apollod.curation.formats.reader import Cursor, Limits, Reader
from apollod.curation.formats.table import DOCUMENT_REASON, ReaderTable
from apollod.curation.moments import Rules
from apollod.errors import SourceRefused
from apollod.failpoints import failpoint

LINES_SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst")
SUFFIXES = (*LINES_SUFFIXES, DOCUMENT_SUFFIX, ARCHIVE_SUFFIX)
"""suffixes of files that may be logs"""
BATCH_LINES_MAX = 256
BATCH_RECORDS_MAX = 1 << 14  # most give no line, such as blank ones
BATCH_BYTES_MAX = 4 << 20  # lines read or records made, exceeded by at most one chunk
HEAD_BYTES = 64 << 10  # shown to the readers for recognising a format
ENCODING_BYTES = 64  # shown for recognising UTF-16
SETTLE_S = 30.0  # a truncated compressed file may still be arriving for this long after its last change
UNENDED_S = 600.0  # a last line without its end may still be arriving for this long; then it is reported
SETTLED_S = 60.0  # a conversation that did not grow for this long is taken as it is
NEAR_DUPLICATE = 0.9  # share of its shingles in common with a known text from which on a text is not learned
MEMORIES = 64  # files whose conversations are cached between two batches; others are read again


class Terms(msgspec.Struct, frozen=True):
    """Parameters of reading the files of a source."""

    rules: Rules = Rules()
    tier: Tier = "bulk"
    record_bytes: int = LINE_BYTES_MAX
    """a longer record is refused"""
    settle_s: float = SETTLED_S
    near_duplicate: float = NEAR_DUPLICATE
    """see `Batch.near_duplicate`"""
    hold: float = 0.0
    """see `Batch.hold`"""
    learn: Learn = "unrejected"
    """see `Batch.learn`"""


@dataclass
class _Unfolding:
    """A compressed file that is being read, so that a batch need not start from its beginning."""

    file: BinaryIO
    reader: Reader
    stream: RecordStream
    source: str
    offset: int


_Endless = tuple[str, int, Cursor]
"""(source, offset of an over-long record in it, how far its end has been searched for)"""


class SourceFiles:
    """Reads files, each identified by its content. `clock`: seconds since the epoch, compared with files' modification
    times. `own`: device and inode of files that this process writes, such as its log: reading one would make it
    longer."""

    def __init__(
        self,
        quarantine: Quarantine,
        terms: Terms,
        formats: ReaderTable | None = None,
        clock: Callable[[], float] = time.time,
        own: frozenset[tuple[int, int]] = frozenset(),
    ) -> None:
        self._own = own
        self._quarantine = quarantine
        self._terms = terms
        self._formats = formats or ReaderTable()
        self._clock = clock
        self._names: dict[str, str] = {}
        self._idle: dict[str, tuple[int, ...]] = {}
        self._endless: dict[str, _Endless] = {}
        self._unended: dict[str, float] = {}
        self._unknown: dict[str, Obstruction] = {}
        self._ahead: dict[str, tuple[tuple[int, ...], float]] = {}
        """files with a modification time in the future: fingerprint, and when that was first seen"""
        self._unfolding: _Unfolding | None = None
        self._memories: OrderedDict[str, Cursor] = OrderedDict()

    def found(self, paths: list[str]) -> list[str]:
        """Set the list of existing files and forget all others. Returns their names as text that JSON can hold;
        `read_batch` finds the file even if its name is not UTF-8."""
        self._names = {printable(path): path for path in paths}
        kept: dict[str, Any]
        for kept in (self._idle, self._endless, self._unended, self._unknown, self._ahead):
            for path in kept.keys() - self._names.keys():
                del kept[path]
        return list(self._names)

    def unread(self) -> dict[str, Obstruction]:
        """Files of unknown format, and files that ended in an incomplete line long ago, by path."""
        now = self._clock()
        unended = {path: UNENDED for path, changed in self._unended.items() if now - changed >= UNENDED_S}
        return unended | self._unknown

    def is_idle(self, path: str, status: os.stat_result) -> bool:
        """True if the whole file was read, and is unchanged since."""
        return self._idle.get(path) == _fingerprint(status)

    def read_batch(self, path: str, known: Mapping[str, Position]) -> Batch | None:
        """Return the next complete lines of a file, or None when there are none now (also when it is gone).

        `known`: the newest position of every file in the journal, by the file's identity (`State.sources`); a repeated
        call without recording the batch returns the same one. Bytes of bad lines are in quarantine when this returns.
        Raises OSError when file or quarantine cannot be used (mode, full disk), SourceRefused for a file that must not
        be read: nothing is taken then, and other files are not affected.
        """
        file = open_regular(self._names.get(path, path))
        if file is None:
            return None
        with file:
            return self._read_file(path, file, known)

    def close(self) -> None:
        """Close a compressed file that is being read."""
        if self._unfolding is not None:
            self._unfolding.file.close()
            self._unfolding = None

    # --- files ------------------------------------------------------------------------------------------------------

    def _read_file(self, path: str, file: BinaryIO, known: Mapping[str, Position]) -> Batch | None:
        status = os.fstat(file.fileno())
        if (status.st_dev, status.st_ino) in self._own:
            raise SourceRefused(
                f"{path} is where this daemon writes its own log, which would never end",
                "have the log written elsewhere, for instance by the service manager",
            )
        if self.is_idle(path, status):
            return None
        head = os.pread(file.fileno(), ENCODING_BYTES, 0)
        if head.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) and b"\0" in head:  # else it is a bad line of UTF-8
            raise SourceRefused(f"{path} is UTF-16 and not UTF-8", "convert it: `iconv -f utf-16 -t utf-8`")
        whole = path.endswith(WHOLE_SUFFIXES)
        self._unended.pop(path, None)
        if not whole and status.st_size and os.pread(file.fileno(), 1, status.st_size - 1) != b"\n":
            self._unended[path] = status.st_mtime
        candidate = identify(path, file, status, whole, known)
        if candidate is None:
            return None
        batch, idle = self._read_whole(candidate) if whole else self._read_plain(candidate)
        if batch is None and idle:
            self._idle[path] = _fingerprint(status)
        return batch

    def _read_plain(self, it: Candidate) -> tuple[Batch | None, bool]:
        """(batch, True if nothing will come without a change of the file)."""
        if it.position.offset and not it.position.line:
            return None, True  # in quarantine as a whole
        if not it.position.offset and not it.position.cursor:
            refused = self._unread(it, partial(read_from, it.file, 0))
            if refused is not None:
                return refused
        before = partial(read_from, it.file, 0)
        reader, cursor = self._reader_of(it, lambda: os.pread(it.file.fileno(), HEAD_BYTES, 0), before)
        folding = Folding(reader, read_from(it.file, cursor.offset), cursor, self._terms.record_bytes, complete=False)
        stream = RecordStream(folding, self._quarantine, self._terms.rules, partial(self._ends, it, reader))
        batch, idle = self._batch(it, reader, stream), True
        if batch is None:
            batch, idle = self._settled(it, reader, stream)
        return None if batch is None else msgspec.structs.replace(batch, tail=tail_digest(it.file, batch.offset)), idle

    def _settled(self, it: Candidate, reader: Reader, stream: RecordStream) -> tuple[Batch | None, bool]:
        """Rest of a conversation that is not written any more; second value as in `_read_plain`."""
        settled = reader.settle(stream.cursor)
        if settled.cursor == stream.cursor:
            return None, True
        if self._age(it) < self._terms.settle_s:
            return None, False
        return self._batch_of(it, reader, settled.cursor, stream.lines_of(settled.items), stream), True

    def _ends(self, it: Candidate, reader: Reader, begin: Cursor, inside: Cursor) -> bool:
        """True if the over-long record that begins at `begin` and has been read up to `inside` ends there.

        After `inside` only bytes that came since the last call are searched. Bytes before are read every time, since a
        file whose space was reserved is filled there.
        """
        source, offset, searched = self._endless.pop(it.path, ("", 0, inside))
        same = (source, offset) == (it.position.source, begin.offset)
        if not same or not inside.offset <= searched.offset <= it.status.st_size:
            searched = inside
        folding = Folding(
            reader, read_from(it.file, searched.offset), searched, self._terms.record_bytes, complete=False
        )
        while folding.next(1) is not None:
            if not folding.cursor.inside:
                return True
        self._endless[it.path] = it.position.source, begin.offset, folding.cursor
        return False

    def _read_whole(self, it: Candidate) -> tuple[Batch | None, bool]:
        """Read a compressed file once all of it can be read, a document when it is not written any more; offsets count
        its content. Returns (batch, True if nothing will come without a change of the file)."""
        if it.position.offset and not it.position.line:
            return None, True  # in quarantine as a whole
        try:
            if it.new and it.path.endswith((DOCUMENT_SUFFIX, ARCHIVE_SUFFIX)):
                if self._age(it) < SETTLE_S:
                    return None, False
                if not self._formats.knows(it.path, _content(it)(HEAD_BYTES)[:HEAD_BYTES]):
                    return None, True  # programs keep all kinds of things in documents
            unfolding = self._unfolding
            if unfolding is None or (unfolding.source, unfolding.offset) != (it.position.source, it.position.offset):
                self.close()
                if it.new:
                    _read_through(it)
                    refused = self._unread(it, partial(_content, it))
                    if refused is not None:
                        return refused
                unfolding = self._unfolding = self._unfold(it)
            unfolding.offset = -1  # invalid, in case reading fails half way
            batch = self._batch(it, unfolding.reader, unfolding.stream)
        except DAMAGE as error:
            self.close()
            if self._age(it) < SETTLE_S:
                return None, False
            what = f"the compressed file is cut off or damaged ({error})"
            return self._refuse_file(it, f"{what}; compress it again and put it here under a new name"), True
        if batch is None:
            self.close()
        else:
            unfolding.offset = batch.offset
        return batch, True

    def _unfold(self, it: Candidate) -> _Unfolding:
        reader, cursor = self._reader_of(it, lambda: _content(it)(HEAD_BYTES)[:HEAD_BYTES], partial(_content, it))
        file = os.fdopen(os.dup(it.file.fileno()), "rb")
        file.seek(0)
        folding = Folding(reader, unpacked(file, it.path), cursor, self._terms.record_bytes, complete=True)
        folding.skip(cursor.offset)
        return _Unfolding(
            file, reader, RecordStream(folding, self._quarantine, self._terms.rules), it.position.source, cursor.offset
        )

    def _unread(self, it: Candidate, content: Callable[[], Read]) -> tuple[Batch | None, bool] | None:
        """Outcome of a new file of unknown format, as in `_read_plain`; None: the format is known. A file in the inbox
        is quarantined; one in a watched directory is reported once."""
        kind = self._formats.unread(bare(it.path), content()(HEAD_BYTES)[:HEAD_BYTES])
        if not kind:
            self._unknown.pop(it.path, None)
            return None
        if self._formats.watched:
            self._unknown.setdefault(it.path, unknown_log(kind, content()))
            return None, True
        if self._age(it) < SETTLE_S:
            return None, False
        return self._refuse_file(it, DOCUMENT_REASON), True

    def _age(self, it: Candidate) -> float:
        """Seconds since the file was changed; if its time lies in the future, seconds since that was first seen."""
        now, changed = self._clock(), it.status.st_mtime
        if changed <= now:
            self._ahead.pop(it.path, None)
            return now - changed
        seen, at = self._ahead.setdefault(it.path, (_fingerprint(it.status), now))
        if seen != _fingerprint(it.status) or at > now:
            at = now
        self._ahead[it.path] = _fingerprint(it.status), at
        return now - at

    def _refuse_file(self, it: Candidate, reason: str) -> Batch:
        """The whole file as line 0. Its position, an offset without a line, marks it as finished."""
        it.file.seek(0)
        with self._quarantine.begin() as keeping:
            while chunk := it.file.read(CHUNK_BYTES):
                keeping.write(chunk)
            kept = keeping.commit()
        line = Line(number=0, reason=reason, bytes=kept.bytes, sha256=kept.sha256, kept=kept.path)
        return Batch(source=it.position.source, path=it.path, offset=kept.bytes, line=0, lines=(line,), new=it.new)

    # --- what the bytes are ------------------------------------------------------------------------------------------

    def _reader_of(
        self, it: Candidate, head: Callable[[], bytes], content: Callable[[], Read]
    ) -> tuple[Reader, Cursor]:
        """Return the reader and its position: as recorded in the journal, or a new one chosen by content."""
        position = it.position
        if not position.offset and not position.cursor:
            return self._formats.recognise(bare(it.path), head()), Cursor()
        reader, cursor = self._formats.resume(position.cursor, position.offset, position.line)
        remembered = self._memories.get(position.source)
        if remembered is not None and (remembered.offset, remembered.state) == (cursor.offset, cursor.state):
            return reader, remembered
        return reader, reader.recall(cursor, _pieces(content, cursor.offset), Limits(self._terms.record_bytes))

    def _batch(self, it: Candidate, reader: Reader, stream: RecordStream) -> Batch | None:
        begin, lines, size = stream.cursor, list[Line](), 0
        while (
            len(lines) < BATCH_LINES_MAX
            and stream.cursor.line - begin.line < BATCH_RECORDS_MAX
            and max(size, stream.cursor.offset - begin.offset) < BATCH_BYTES_MAX
        ):
            more = stream.next(BATCH_LINES_MAX - len(lines))
            if more is None:
                break
            lines += more
            size += sum(len(line.record) for line in more)
        if stream.cursor == begin and not lines:
            return None
        failpoint("inbox.batch-read")
        return self._batch_of(it, reader, stream.cursor, lines, stream)

    def _batch_of(
        self, it: Candidate, reader: Reader, cursor: Cursor, lines: list[Line], stream: RecordStream
    ) -> Batch:
        if cursor.memory is not None:
            self._memories[it.position.source] = cursor
            self._memories.move_to_end(it.position.source)
            if len(self._memories) > MEMORIES:
                self._memories.popitem(last=False)
        counts, unlearned = stream.take_counts()
        return composed(
            Batch,
            self._terms,
            source=it.position.source,
            path=it.path,
            offset=cursor.offset,
            line=cursor.line,
            lines=tuple(lines),
            new=it.new,
            replaces=it.replaces,
            cursor=self._formats.recorded(reader, cursor),
            counts=counts,
            unlearned=unlearned,
        )


def _content(it: Candidate) -> Read:
    """Reader of all of a compressed file's content, from its beginning."""
    it.file.seek(0)
    return unpacked(it.file, it.path)


def _pieces(content: Callable[[], Read], size: int) -> Iterator[bytes]:
    """The first `size` bytes, piece by piece. The file is opened with the first piece."""
    read = content()
    while size and (piece := read(min(CHUNK_BYTES, size))):
        yield piece
        size -= len(piece)


def _read_through(it: Candidate) -> None:
    """Unpack all of it; raises one of DAMAGE."""
    read = _content(it)
    while read(CHUNK_BYTES):
        pass


def _fingerprint(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def printable(path: str) -> str:
    """A path as text for JSON: names need not be UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
