"""Reads the content of a compressed file, in bounded memory."""

import gzip
import zipfile
import zlib
from collections.abc import Callable
from typing import BinaryIO

import zstandard

from apollod.adapters.sources.eval_archive import EvalArchive, is_archive

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


def unpacked(file: BinaryIO, name: str) -> Read:
    """Return a function that reads the content of a file from its current position: of a .gz or .zst file unpacked, of
    a .eval file if it is an archive (else nothing); it raises one of DAMAGE."""
    if not name.endswith(PACKED_SUFFIXES):
        return file.read
    if name.endswith(ARCHIVE_SUFFIX):
        return EvalArchive(file).read if is_archive(file) else (lambda size: b"")
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
