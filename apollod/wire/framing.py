"""Length-prefixed frames: 4 bytes big-endian length, then that many bytes of msgpack.

Without I/O, and the only place that knows the frame: bytes are fed in pieces as they arrive, whole frames or messages
are taken out. The limit is checked before anything is kept, so a hostile length costs nothing.
"""

from collections import deque
from typing import Generic, TypeVar

import msgspec

from apollod.errors import FrameError

HEADER_BYTES = 4
FRAME_BYTES_MAX = 64 << 20  # a manifest of a large model is under 1 MiB; an inbox batch under 16 MiB

T = TypeVar("T")

_encoder = msgspec.msgpack.Encoder()


def encode(message: msgspec.Struct) -> bytes:
    """Encode a message as msgpack."""
    return _encoder.encode(message)


def encode_message(message: msgspec.Struct) -> bytes:
    """Encode a message as a frame; raises FrameError if it is over the limit."""
    return encode_frame(encode(message))


def encode_frame(payload: bytes) -> bytes:
    """Build a frame; raises FrameError if the payload is over the limit."""
    if len(payload) > FRAME_BYTES_MAX:
        raise FrameError(f"a message of {len(payload)} bytes is over the limit of {FRAME_BYTES_MAX}", "split it")
    return len(payload).to_bytes(HEADER_BYTES, "big") + payload


class FrameDecoder:
    """Incremental frame decoder for one direction of a socket."""

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
                raise FrameError(
                    f"a frame announces {length} bytes, the limit is {self._limit}", "this is not an apollod peer"
                )
            end = HEADER_BYTES + length
            if len(self._buffer) < end:
                break
            frames.append(bytes(self._buffer[HEADER_BYTES:end]))
            del self._buffer[:end]
        return frames


class MessageDecoder(Generic[T]):
    """Incremental message decoder for one direction of a socket; the messages are of one union."""

    def __init__(self, decoder: "msgspec.msgpack.Decoder[T]", limit: int = FRAME_BYTES_MAX) -> None:
        self._decoder = decoder
        self._framing = FrameDecoder(limit)
        self._frames: deque[bytes] = deque()

    def feed(self, data: bytes) -> None:
        """Add received bytes. Raises FrameError on a length over the limit."""
        self._frames.extend(self._framing.feed(data))

    def waiting(self) -> bool:
        """True if a whole message has arrived that `next` has not returned yet."""
        return bool(self._frames)

    def next(self) -> T | None:
        """The next whole message, None if there is none yet. Raises FrameError for a frame that is not a message of the
        union."""
        if not self._frames:
            return None
        try:
            return self._decoder.decode(self._frames.popleft())
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            what = f"not a message of this protocol: {error}"
            raise FrameError(what, "use one version of apollod everywhere") from error
