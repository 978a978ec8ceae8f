"""Complete lines of a file or a compressed file, in bounded memory."""

import gzip
import zlib
from collections.abc import Callable
from typing import BinaryIO

import zstandard

from apollod.adapters.quarantine import Kept, Quarantine

CHUNK_BYTES = 64 << 10
ZSTD_PIECE_BYTES = 512  # compressed bytes at a time: 4 of them can become 128 KiB, so this bounds what one call returns
DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError)
"""What reading a compressed file raises when it is cut off or not what its name says."""

Read = Callable[[int], bytes]


class LineReader:
    """Lines of a stream, one by one. A line longer than `line_max` goes straight into quarantine.

    `read(n)` gives some bytes, none at the end. `whole`: there will never be more, so the end also ends the last line;
    otherwise a line counts once its newline is there.
    """

    def __init__(self, read: Read, quarantine: Quarantine, line_max: int, whole: bool) -> None:
        self._read = read
        self._quarantine = quarantine
        self._line_max = line_max
        self._whole = whole
        self._buffer = bytearray()

    def next(self) -> bytes | Kept | None:
        """The next line with its newline, what became of one that is too long, or None when there is none (yet)."""
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0 and len(self._buffer) <= self._line_max:
            searched = len(self._buffer)
            chunk = self._read(CHUNK_BYTES)
            if not chunk:
                return self._take(searched) if self._whole and searched else None
            self._buffer += chunk
        length = end + 1 if end >= 0 else len(self._buffer)
        return self._keep_long() if length > self._line_max else self._take(length)

    def skip(self, size: int) -> None:
        """Pass over `size` bytes; raises EOFError when there are not so many."""
        while size > len(self._buffer):
            size -= len(self._buffer)
            self._buffer.clear()
            chunk = self._read(CHUNK_BYTES)
            if not chunk:
                raise EOFError("the file became shorter")
            self._buffer += chunk
        del self._buffer[:size]

    def _take(self, length: int) -> bytes:
        line = bytes(self._buffer[:length])
        del self._buffer[:length]
        return line

    def _keep_long(self) -> Kept | None:
        """Move a line that is too long into quarantine as it comes; None when its end is not there yet."""
        with self._quarantine.begin() as keeping:
            while (end := self._buffer.find(b"\n")) < 0:
                keeping.write(self._buffer)
                self._buffer.clear()
                chunk = self._read(CHUNK_BYTES)
                if not chunk:
                    return keeping.commit() if self._whole else None
                self._buffer += chunk
            keeping.write(self._take(end + 1))
            return keeping.commit()


def decompressed(file: BinaryIO, name: str) -> Read:
    """A reader of the content of a .gz or .zst file; raises one of DAMAGE."""
    if name.endswith(".gz"):
        return gzip.GzipFile(fileobj=file, mode="rb").read
    return _Zstd(file).read


class _Zstd:
    """Frames one after the other. zstandard's own stream reader takes a cut-off frame for the end."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._rest = b""

    def read(self, size: int) -> bytes:
        """The next bytes, a bounded number whatever `size` says."""
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
