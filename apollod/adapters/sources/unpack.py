"""Reads the content of a packed file, in bounded memory: .gz, .zst, and .eval, a log of Inspect as lines.

An `.eval` is a zip whose samples are members, packed by deflate or zstd. It is bounded whatever the file says: a member
that claims to be larger than `MEMBER_BYTES` is reported and not unpacked, one that is larger than it claims is damage,
and an archive that claims more than `TOTAL_BYTES` is refused before anything is unpacked.
"""

import errno
import gzip
import io
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from stat import S_ISREG
from typing import BinaryIO

import zstandard

from apollod.core.inputs import Obstruction
from apollod.curation.formats.agents.inspect_log import BEGIN, line_of_sample
from apollod.curation.formats.table import DOCUMENT_REASON, Unread
from apollod.errors import ApolloError
from apollod.explain import reason
from apollod.permission import denied

ZSTD_PIECE_BYTES = 32  # compressed bytes at a time: 4 of them can become 128 KiB, so one call returns 1 MiB at most
ARCHIVE_SUFFIX = ".eval"
PACKED_SUFFIXES = (".gz", ".zst", ARCHIVE_SUFFIX)
DOCUMENT_SUFFIX = ".json"
WHOLE_SUFFIXES = (*PACKED_SUFFIXES, DOCUMENT_SUFFIX)
"""suffixes of files that are read once they are complete"""
DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError, zipfile.BadZipFile)
"""Errors of reading a compressed file that is cut off or not of the format that its name says."""

Read = Callable[[int], bytes]
"""(largest number of bytes) -> the next bytes, b"" at the end"""
ZIP_MAGIC = b"PK\x03\x04"
ZSTANDARD = 93  # method of a zip that Python's zipfile cannot unpack
MEMBER_BYTES = 64 << 20
TOTAL_BYTES = 8 << 30
MEMBERS_MAX = 200_000
LOCAL_HEADER_BYTES = 30


def bare(path: str) -> str:
    """A path without a compression suffix."""
    for suffix in PACKED_SUFFIXES:
        path = path.removesuffix(suffix)
    return path


def unpacked(file: BinaryIO, name: str) -> Read:
    """Return a function that reads the content of a file from its current position: of a .gz or .zst file unpacked, of
    a .eval file if it is an archive (else nothing); it raises one of DAMAGE."""
    if not name.endswith(PACKED_SUFFIXES):
        return file.read
    if name.endswith(ARCHIVE_SUFFIX):
        return EvalArchive(file).read if _is_zip(file) else (lambda size: b"")
    if name.endswith(".gz"):
        return gzip.GzipFile(fileobj=file, mode="rb").read
    return _Zstd(file).read


class _Zstd:
    """Reads one frame after another. zstandard's own stream reader takes a cut-off frame for the end."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._rest = b""

    def read(self, size: int) -> bytes:
        """Return the next bytes, a bounded number whatever `size` says."""
        while True:
            data = self._rest or self._file.read(ZSTD_PIECE_BYTES)
            if not data:
                if self._frame is not None:
                    raise EOFError("the last frame is cut off")
                return b""
            if self._frame is None:
                self._frame = zstandard.ZstdDecompressor().decompressobj()
            content = self._frame.decompress(data)
            self._rest = self._frame.unused_data
            if self._frame.eof:
                self._frame = None
            if content:
                return content


def _is_zip(file: BinaryIO) -> bool:
    """True if a file begins like a zip; rewinds the file."""
    file.seek(0)
    begin = file.read(len(ZIP_MAGIC))
    file.seek(0)
    return begin == ZIP_MAGIC


class EvalArchive:
    """Content of an open `.eval`. Raises BadZipFile, also later, for one that is cut off, damaged or too large."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._rest = b""
        self._lines = self._content()

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes; b"" at the end."""
        if not self._rest:
            self._rest = next(self._lines, b"")
        piece, self._rest = self._rest[:size], self._rest[size:]
        return piece

    def _content(self) -> Iterator[bytes]:
        with zipfile.ZipFile(self._file) as archive:
            members = archive.infolist()
            if len(members) > MEMBERS_MAX or sum(member.file_size for member in members) > TOTAL_BYTES:
                raise zipfile.BadZipFile(f"it claims to hold more than {MEMBERS_MAX} members or {TOTAL_BYTES} bytes")
            yield BEGIN
            for member in sorted(members, key=lambda member: member.filename):
                if not member.filename.startswith("samples/") or not member.filename.endswith(".json"):
                    continue
                if max(member.file_size, member.compress_size) > MEMBER_BYTES:
                    yield b"a sample of %d bytes, which is too long\n" % member.file_size
                else:
                    yield line_of_sample(self._unpacked(archive, member))

    def _unpacked(self, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
        if member.compress_type != ZSTANDARD:
            try:
                with archive.open(member) as content:
                    return content.read(MEMBER_BYTES + 1)
            except (NotImplementedError, RuntimeError) as error:  # another method, or a password
                raise zipfile.BadZipFile(f"{member.filename}: {error}") from error
        self._file.seek(member.header_offset)
        header = self._file.read(LOCAL_HEADER_BYTES)
        if len(header) < LOCAL_HEADER_BYTES or not header.startswith(ZIP_MAGIC):
            raise zipfile.BadZipFile(f"{member.filename} is not where the directory says")
        name, extra = struct.unpack("<HH", header[-4:])
        self._file.seek(name + extra, io.SEEK_CUR)
        packed = io.BytesIO(self._file.read(member.compress_size))
        with zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True) as content:
            data = content.read(member.file_size + 1)
        if len(data) != member.file_size or zlib.crc32(data) != member.CRC:
            raise zipfile.BadZipFile(f"{member.filename} is not what the directory says")
        return data


# Explains why a file or directory cannot be read, with a fix. Other modules decide about the file.

LINK = Obstruction(
    "it is a link, and links are not followed", "watch the directory to which it leads, or copy the file"
)
NO_FILE = Obstruction("it is a pipe, socket or device and no file", "have the log written into a file")
OURS = Obstruction("the daemon writes here itself, so it is left out", "move [state] dir, or watch the others alone")
GONE = Obstruction("it is not there", "make it, or take it out: `apollod ctl source remove`")
NO_DIRECTORY = Obstruction("it is no directory", "watch the directory in which it lies")
NO_DATABASE = Obstruction(
    "it is no SQLite database", "watch the database of the agent, or the directory in which it lies"
)
UNENDED = Obstruction(
    "nobody added to it for ten minutes, and its last line has no end", "if that line is whole, add a newline"
)


COUNTED_BYTES = 64 << 20  # limit for a file whose records are only counted


def unknown_log(kind: Unread, read: Read) -> Obstruction:
    """Report a file of unknown format in a watched directory; `read` returns its content from the beginning."""
    if kind == "document":
        return Obstruction(DOCUMENT_REASON, "if it is a log, watch it where the agent writes it line by line")
    records, left = 0, COUNTED_BYTES
    while left > 0 and (piece := read(1 << 20)):
        records += piece.count(b"\n")
        left -= len(piece)
    return Obstruction(
        f"an unknown agent log, {'more than ' if left <= 0 else ''}{records} records",
        "docs/formats.md lists what can be read; `format` in [[watch]] says it where it is not recognised",
    )


def obstruction(error: Exception, path: str) -> Obstruction:
    """Reason and fix for an error (OSError, SourceRefused) that reading `path` raised."""
    if isinstance(error, ApolloError):
        return Obstruction(str(error), error.hint)
    if isinstance(error, PermissionError):
        place = os.fsdecode(error.filename) if error.filename else path
        refusal = denied(path if place == path else os.path.dirname(place))  # another path: the quarantine directory
        return Obstruction(str(refusal), f"let the daemon's user read it, or {refusal.hint}")
    if not isinstance(error, OSError):
        raise error
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
        return {errno.ENOENT: GONE, errno.ENOTDIR: NO_DIRECTORY, errno.ELOOP: LINK}[error.errno]
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Obstruction(f"its bad lines cannot be kept: {reason(error)}", "free space on the disk of [state] dir")
    return Obstruction(f"the system says: {reason(error)}", "look at its disk")


def entry_obstruction(entry: "os.DirEntry[str]", suffixes: tuple[str, ...], within: str) -> Obstruction | None:
    """Reason why an entry of a directory is not read, if a user may expect it to be read; else None. `within`: a real
    path; a link to a path below it hides nothing. Raises OSError."""
    if entry.name.startswith(".") or not (entry.name.endswith(suffixes) or entry.is_symlink()):
        return None
    if not entry.is_symlink():
        return None if S_ISREG(entry.stat(follow_symlinks=False).st_mode) else NO_FILE
    if not (entry.name.endswith(suffixes) or entry.is_dir()):
        return None
    return None if is_below(os.path.realpath(entry.path), within) else LINK


def is_below(path: str, directory: str) -> bool:
    """True if a real path is a directory's, or below it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")
