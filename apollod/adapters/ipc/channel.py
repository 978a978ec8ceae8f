"""A blocking socket for framed messages with file descriptors: used by every process but the supervisor."""

import os
import select
import socket
import threading
from collections import deque
from typing import Generic, TypeVar

import msgspec

from apollod.adapters.ipc.connecting import silent
from apollod.errors import FrameError, LinkClosed
from apollod.wire.framing import MessageDecoder, encode_message

RECEIVE_BYTES = 1 << 20
FDS_MAX = 8  # a frame carries at most one descriptor; the kernel hands over what lies in one read

T = TypeVar("T")


class Channel(Generic[T]):
    """One connection that sends messages of the union T. `peer`: its name in errors. `send` may be called from several
    threads; `receive` from one."""

    def __init__(self, sock: socket.socket, decoder: "msgspec.msgpack.Decoder[T]", peer: str = "the peer") -> None:
        self._sock = sock
        self._peer = peer
        self._incoming = MessageDecoder(decoder)
        self._fds: deque[int] = deque()
        self._sending = threading.Lock()

    def send(self, message: msgspec.Struct) -> None:
        """Send one message; raises LinkClosed when the peer is gone."""
        frame = encode_message(message)
        try:
            with self._sending:
                self._sock.sendall(frame)
        except OSError as error:
            raise self._closed(error) from error

    def receive(self) -> T:
        """Return the next message; raises LinkClosed at the end of the stream, FrameError for an invalid message,
        DaemonUnreachable when the time limit of the socket passes."""
        while (message := self._incoming.next()) is None:
            try:
                data, fds, _, _ = socket.recv_fds(self._sock, RECEIVE_BYTES, FDS_MAX)
            except TimeoutError as error:
                raise silent() from error
            except OSError as error:
                raise self._closed(error) from error
            self._fds.extend(fds)
            if not data:
                raise LinkClosed(f"{self._peer} closed the socket")
            self._incoming.feed(data)
        return message

    def waiting(self) -> bool:
        """True if `receive` would find data at once: a message, a part of one, or the end. Not safe while `receive`
        runs."""
        return self._incoming.waiting() or bool(select.select([self._sock], [], [], 0)[0])

    def take_fd(self) -> int:
        """Return the descriptor that came with the latest `Share`; the caller owns it."""
        if not self._fds:
            raise FrameError("a descriptor was announced but did not come", "use one version of apollod everywhere")
        fd = self._fds.popleft()
        os.set_inheritable(fd, False)
        return fd

    def close(self) -> None:
        """Close the socket and every descriptor that was not taken."""
        self._sock.close()
        while self._fds:
            os.close(self._fds.popleft())

    def _closed(self, error: OSError) -> LinkClosed:
        return LinkClosed(f"the socket to {self._peer} is closed ({error})")
