"""Reads the content of a packed file, in bounded memory: .gz, .zst, and .eval, a log of Inspect as lines.

An `.eval` is a zip whose samples are members, packed by deflate or zstd. It is bounded whatever the file says: a member
that claims to be larger than `MEMBER_BYTES` is reported and not unpacked, one that is larger than it claims is damage,
and an archive that claims more than `TOTAL_BYTES` is refused before anything is unpacked.
"""

import gzip
import io
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO

import zstandard

from apollod.curation.formats.agents.inspect_log import BEGIN, line_of_sample

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
