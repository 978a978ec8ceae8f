"""A log of Inspect (`.eval`) as lines: a zip whose samples are members, packed by deflate or zstd.

Bounded whatever the file says: a member that claims to be larger than `MEMBER_BYTES` is reported and not unpacked, one
that is larger than it claims is damage, and an archive that claims more than `TOTAL_BYTES` is refused before anything
is unpacked.
"""

import io
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO

import zstandard

from apollod.curation.formats.agents.inspect_log import BEGIN, line_of_sample

MAGIC = b"PK\x03\x04"
ZSTANDARD = 93  # method of a zip that Python's zipfile cannot unpack
MEMBER_BYTES = 64 << 20
TOTAL_BYTES = 8 << 30
MEMBERS_MAX = 200_000
LOCAL_HEADER_BYTES = 30


def is_archive(file: BinaryIO) -> bool:
    """True if a file begins like a zip; rewinds the file."""
    file.seek(0)
    begin = file.read(len(MAGIC))
    file.seek(0)
    return begin == MAGIC


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
        if len(header) < LOCAL_HEADER_BYTES or not header.startswith(MAGIC):
            raise zipfile.BadZipFile(f"{member.filename} is not where the directory says")
        name, extra = struct.unpack("<HH", header[-4:])
        self._file.seek(name + extra, io.SEEK_CUR)
        packed = io.BytesIO(self._file.read(member.compress_size))
        with zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True) as content:
            data = content.read(member.file_size + 1)
        if len(data) != member.file_size or zlib.crc32(data) != member.CRC:
            raise zipfile.BadZipFile(f"{member.filename} is not what the directory says")
        return data
