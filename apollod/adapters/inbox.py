"""The inbox directory: complete lines of the files in it, each exactly once.

Law: no decisions and no memory that matters. Where reading goes on is the journal's knowledge (`source.consumed`,
appended in one transaction with what the lines became); everything kept here is a cache. A file is what it is, not its
name: device, inode and a hash of its beginning, so that a rename changes nothing. Blocking: the caller uses a worker
thread, one `scan` or `read_batch` at a time.
"""

import os
import stat
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

import anyio
import msgspec
import watchfiles
from watchfiles._rust_notify import WatchfilesRustInternalError

from apollod.adapters.line_reader import CHUNK_BYTES, DAMAGE, LineReader, decompressed
from apollod.adapters.quarantine import Kept, Quarantine
from apollod.core.intake import Batch, Line
from apollod.core.state import Position
from apollod.errors import RecordRefused
from apollod.failpoints import failpoint
from apollod.wire.records import parse_line

SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst")
LINE_BYTES_MAX = 1 << 20
BATCH_LINES_MAX = 256
BATCH_BYTES_MAX = 4 << 20  # of lines read, overshot by at most one line
PREFIX_BYTES = 64 << 10  # of the first line: long enough to tell logs that begin with the same long system prompt apart
TAIL_BYTES = 4 << 10  # before a position; another number, and journals would say of every file that it was written anew
SETTLE_S = 30.0  # a compressed file that is cut off may still be on its way for so long after its last change
HINT_MS = 200  # changes are gathered this long
BOM = b"\xef\xbb\xbf"


@dataclass
class _Unfolding:
    """A compressed file in the middle of being read, so that a batch need not start from its beginning."""

    file: BinaryIO
    reader: LineReader
    source: str
    offset: int


@dataclass
class _Candidate:
    """An open file, who it is, and where to go on."""

    path: str
    file: BinaryIO
    status: os.stat_result
    position: Position
    new: bool
    replaces: str = ""


class Inbox:
    """One inbox directory. `clock`: seconds since the epoch, compared with files' modification times."""

    def __init__(
        self,
        directory: Path,
        quarantine: Path,
        line_max: int = LINE_BYTES_MAX,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._directory = directory
        self._quarantine = Quarantine(quarantine)
        self._quarantine.clear_unfinished()
        self._line_max = line_max
        self._clock = clock
        self._names: dict[str, str] = {}
        self._idle: dict[str, tuple[int, ...]] = {}
        self._endless: dict[str, tuple[Position, int]] = {}
        self._unfolding: _Unfolding | None = None

    def scan(self) -> list[str]:
        """Paths of candidate files, by name; links, pipes and names that begin with a dot are not looked at.

        A path is text that JSON can hold; `read_batch` finds the file also where its name is not UTF-8.
        """
        try:
            with os.scandir(self._directory) as entries:
                names = [e.name for e in entries if e.name.endswith(SUFFIXES) and e.is_file(follow_symlinks=False)]
        except FileNotFoundError:
            return []
        paths = [str(self._directory / name) for name in sorted(names) if not name.startswith(".")]
        self._names = {_printable(path): path for path in paths}
        self._idle = {path: self._idle[path] for path in self._names if path in self._idle}
        self._endless = {path: self._endless[path] for path in self._names if path in self._endless}
        return list(self._names)

    def read_batch(self, path: str, known: Mapping[str, Position]) -> Batch | None:
        """The next complete lines of a file, or None when there are none now (also when it is gone).

        `known`: the newest position of every file in the journal, by the file's identity (`State.sources`); whoever calls
        again without having recorded a batch gets the same one. Bytes of bad lines are in quarantine when this returns.
        Raises OSError when file or quarantine cannot be used (mode, full disk): nothing is taken then, and other files are
        not concerned.
        """
        file = _open_regular(self._names.get(path, path))
        if file is None:
            return None
        with file:
            return self._read_file(path, file, known)

    async def watch(self, every_s: float = 2.0) -> AsyncIterator[None]:
        """Yields at once, after something changed in the directory, and at least every `every_s` seconds.

        Notifications are hints only: where they are not to be had (no such directory, no watches left) time has to do.
        """
        yield
        while True:
            changes = watchfiles.awatch(
                self._directory, debounce=HINT_MS, rust_timeout=int(every_s * 1000), yield_on_timeout=True, recursive=False
            )
            try:
                async with aclosing(changes):
                    async for _ in changes:
                        yield
            except (OSError, WatchfilesRustInternalError):
                await anyio.sleep(every_s)
                yield

    def close(self) -> None:
        """Let go of a compressed file that is being read."""
        if self._unfolding is not None:
            self._unfolding.file.close()
            self._unfolding = None

    # --- files ------------------------------------------------------------------------------------------------------

    def _read_file(self, path: str, file: BinaryIO, known: Mapping[str, Position]) -> Batch | None:
        status = os.fstat(file.fileno())
        fingerprint = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if self._idle.get(path) == fingerprint:
            return None
        compressed = not path.endswith(".jsonl")
        candidate = self._identify(path, file, status, compressed, known)
        if candidate is None:
            return None
        batch, idle = self._read_compressed(candidate) if compressed else (self._read_plain(candidate), True)
        if batch is None and idle:
            self._idle[path] = fingerprint
        return batch

    def _identify(
        self, path: str, file: BinaryIO, status: os.stat_result, compressed: bool, known: Mapping[str, Position]
    ) -> _Candidate | None:
        """Who the file is and where to go on; None while it has no complete line."""
        prefix = os.pread(file.fileno(), PREFIX_BYTES, 0)
        if compressed:
            prefix += b"%d" % status.st_size  # it is taken whole: with another size it is another file
            if not status.st_size:
                return None
        elif (end := prefix.find(b"\n")) >= 0:
            prefix = prefix[: end + 1]
        elif len(prefix) < PREFIX_BYTES:
            return None
        identity = _digest(b"%d %d " % (status.st_dev, status.st_ino) + prefix)
        position = known.get(identity)
        if position is None:
            return _Candidate(path, file, status, Position(identity, 0, 0), new=True)
        if not compressed and not _continues(file, status, position):
            return _Candidate(path, file, status, position.anew(), new=True, replaces=position.source)
        return _Candidate(path, file, status, position, new=False)

    def _ends(self, it: _Candidate) -> bool:
        """Has the line at the position an end? Where it is longer than a line may be, the end is searched for only in what came
        since it was last asked, and before the limit: that is where a file is filled whose space was reserved."""
        begin, size = it.position.offset, it.status.st_size
        limit = min(begin + self._line_max, size)
        position, searched = self._endless.pop(it.path, (it.position, 0))
        if position != it.position or searched > size:
            searched = 0
        if _newline_between(it.file, begin, limit) or _newline_between(it.file, max(limit, searched), size):
            return True
        self._endless[it.path] = it.position, size
        return False

    def _read_plain(self, it: _Candidate) -> Batch | None:
        if not self._ends(it):
            return None
        it.file.seek(it.position.offset)
        batch = self._batch(it, LineReader(it.file.read, self._quarantine, self._line_max, whole=False))
        return None if batch is None else msgspec.structs.replace(batch, tail=_digest(_tail(it.file, batch.offset)))

    def _read_compressed(self, it: _Candidate) -> tuple[Batch | None, bool]:
        """A compressed file is taken once all of it can be read; offsets count its content. The second value: nothing
        will come without a change of the file."""
        if it.position.offset and not it.position.line:
            return None, True  # in quarantine as a whole
        try:
            unfolding = self._unfolding
            if unfolding is None or (unfolding.source, unfolding.offset) != (it.position.source, it.position.offset):
                self.close()
                if it.new:
                    _read_through(it)
                unfolding = self._unfolding = self._unfold(it)
                unfolding.reader.skip(it.position.offset)
            unfolding.offset = -1  # nowhere, should reading fail half way
            batch = self._batch(it, unfolding.reader)
        except DAMAGE as error:
            self.close()
            if self._clock() - it.status.st_mtime < SETTLE_S:
                return None, False
            return self._refuse_file(it, error), True
        if batch is None:
            self.close()
        else:
            unfolding.offset = batch.offset
        return batch, True

    def _unfold(self, it: _Candidate) -> _Unfolding:
        file = os.fdopen(os.dup(it.file.fileno()), "rb")
        file.seek(0)
        reader = LineReader(decompressed(file, it.path), self._quarantine, self._line_max, whole=True)
        return _Unfolding(file, reader, it.position.source, it.position.offset)

    def _refuse_file(self, it: _Candidate, error: Exception) -> Batch:
        """The whole file as line 0. Its position, an offset without a line, says that it is done with."""
        it.file.seek(0)
        with self._quarantine.begin() as keeping:
            while chunk := it.file.read(CHUNK_BYTES):
                keeping.write(chunk)
            kept = keeping.commit()
        reason = f"the compressed file is cut off or damaged ({error}); compress it again and put it here under a new name"
        line = Line(number=0, reason=reason, bytes=kept.bytes, sha256=kept.sha256, kept=kept.path)
        return Batch(source=it.position.source, path=it.path, offset=kept.bytes, line=0, lines=(line,), new=it.new)

    # --- lines ------------------------------------------------------------------------------------------------------

    def _batch(self, it: _Candidate, reader: LineReader) -> Batch | None:
        offset, number = it.position.offset, it.position.line
        lines: list[Line] = []
        while len(lines) < BATCH_LINES_MAX and offset - it.position.offset < BATCH_BYTES_MAX:
            raw = reader.next()
            if raw is None:
                break
            length = raw.bytes if isinstance(raw, Kept) else len(raw)
            if offset == 0 and isinstance(raw, bytes):
                raw = raw.removeprefix(BOM)
            offset, number = offset + length, number + 1
            line = _line(number, raw, self._quarantine, self._line_max)
            if line is not None:
                lines.append(line)
        if offset == it.position.offset:
            return None
        failpoint("inbox.batch-read")
        return Batch(
            source=it.position.source, path=it.path, offset=offset, line=number, lines=tuple(lines),
            new=it.new, replaces=it.replaces,
        )


def batch_of_lines(lines: Sequence[bytes], source: str, quarantine: Path, line_max: int = LINE_BYTES_MAX) -> Batch:
    """Lines that came over a socket, as a batch without a position: somebody waits for these. Blocking; raises OSError when a
    bad line cannot be kept."""
    kept_in = Quarantine(quarantine)
    lines = [*(first.removeprefix(BOM) for first in lines[:1]), *lines[1:]]
    taken = [line for number, raw in enumerate(lines, 1) if (line := _line(number, raw, kept_in, line_max))]
    return Batch(source=source, path="", offset=0, line=len(lines), lines=tuple(taken), tracked=False, tier="direct")


def _line(number: int, raw: bytes | Kept, quarantine: Quarantine, line_max: int) -> Line | None:
    """A line as a record or, after its bytes are kept, as a bad one; None for a blank one."""
    if isinstance(raw, bytes) and len(raw) <= line_max:
        if not raw.strip():
            return None
        try:
            record = parse_line(raw)
            return Line(number=number, example=record.id, record=record.canonical, tier=record.tier)
        except RecordRefused as error:
            reason = error.line()
    else:
        reason = f"the line is longer than {line_max} bytes; split it, or leave out what the model need not see"
    kept = raw if isinstance(raw, Kept) else quarantine.keep(raw)
    return Line(number=number, reason=reason, bytes=kept.bytes, sha256=kept.sha256, kept=kept.path)


def _open_regular(path: str) -> BinaryIO | None:
    """The file, if it is a regular one and still there; never waits on a pipe, never follows a link."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return os.fdopen(fd, "rb")
    os.close(fd)
    return None


def _continues(file: BinaryIO, status: os.stat_result, position: Position) -> bool:
    """Is what was taken still before the position, or was the file truncated and written anew? A line has to end
    there, and the bytes before it have to be those that were there, where the journal says which."""
    if status.st_size < position.offset:
        return False
    tail = _tail(file, position.offset)
    return tail.endswith(b"\n") and position.tail in ("", _digest(tail))


def _newline_between(file: BinaryIO, begin: int, end: int) -> bool:
    while begin < end and (chunk := os.pread(file.fileno(), min(CHUNK_BYTES, end - begin), begin)):
        if b"\n" in chunk:
            return True
        begin += len(chunk)
    return False


def _tail(file: BinaryIO, offset: int) -> bytes:
    """Up to TAIL_BYTES before an offset."""
    length = min(offset, TAIL_BYTES)
    return os.pread(file.fileno(), length, offset - length)


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()[:24]


def _read_through(it: _Candidate) -> None:
    """Decompress all of it; raises one of DAMAGE."""
    it.file.seek(0)
    read = decompressed(it.file, it.path)
    while read(CHUNK_BYTES):
        pass


def _printable(path: str) -> str:
    """A path as it can stand in JSON: names need not be UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
