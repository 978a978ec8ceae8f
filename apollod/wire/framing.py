"""Length-prefixed frames: 4 bytes big-endian length, then that many bytes of msgpack.

Sans I/O: feed bytes in whatever pieces arrive, take whole frames out. The limit is checked before anything is kept,
so a hostile length costs nothing.
"""

from apollod.errors import FrameError

HEADER_BYTES = 4
FRAME_BYTES_MAX = 64 << 20  # a manifest of a large model is under 1 MiB; an inbox batch under 16 MiB


def encode_frame(payload: bytes) -> bytes:
    """One frame; raises FrameError when the payload is longer than a frame may be."""
    if len(payload) > FRAME_BYTES_MAX:
        raise FrameError(f"a message of {len(payload)} bytes is over the limit of {FRAME_BYTES_MAX}", "split it")
    return len(payload).to_bytes(HEADER_BYTES, "big") + payload


class FrameDecoder:
    """Incremental decoder of one direction of a socket."""

    def __init__(self, limit: int = FRAME_BYTES_MAX) -> None:
        self._buffer = bytearray()
        self._limit = limit

    def feed(self, data: bytes) -> list[bytes]:
        """Frames completed by `data`, in order. Raises FrameError on a length over the limit."""
        self._buffer += data
        frames = []
        while len(self._buffer) >= HEADER_BYTES:
            length = int.from_bytes(self._buffer[:HEADER_BYTES], "big")
            if length > self._limit:
                raise FrameError(f"a frame announces {length} bytes, the limit is {self._limit}", "this is not an apollod peer")
            end = HEADER_BYTES + length
            if len(self._buffer) < end:
                break
            frames.append(bytes(self._buffer[HEADER_BYTES:end]))
            del self._buffer[:end]
        return frames
