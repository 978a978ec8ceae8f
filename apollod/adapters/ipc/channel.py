"""Blocking sockets for framed messages, used by every process but the supervisor: a channel that also passes file
descriptors; the link of engine and trainer to the supervisor; one request to a running daemon, for `apollod ctl`, the
demo, benchmarks and tests (`light_client` fetches the status alone faster)."""

import os
import select
import socket
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from apollod.adapters.ipc.light_client import TIMEOUT_S, connect, silent
from apollod.errors import ConfigError, FrameError, LinkClosed, ShareRefused, refusal
from apollod.failpoints import failpoint
from apollod.wire.control_messages import Answer, Failure
from apollod.wire.framing import MessageDecoder, encode_message

if TYPE_CHECKING:
    from apollod.wire.messages import FromSupervisor  # noqa: F401  named by Link

RECEIVE_BYTES = 1 << 20
FDS_MAX = 8  # a frame carries at most one descriptor; the kernel hands over what lies in one read
_ANSWERS: "msgspec.msgpack.Decoder[Answer]" = msgspec.msgpack.Decoder(Answer)

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


class Link(Channel["FromSupervisor"]):
    """One connection of engine or trainer to the supervisor."""

    def __init__(self, sock: socket.socket) -> None:
        from apollod.wire.messages import FROM_SUPERVISOR  # here: `apollod ctl` need not wait for it, nearly 0.1 s

        super().__init__(sock, FROM_SUPERVISOR, "the supervisor")

    @classmethod
    def connect(cls, path: str, timeout_s: float | None = None) -> "Link":
        """Connect to the supervisor's socket; see `light_client.connect`."""
        return cls(connect(path, timeout_s))

    def reserve(self, size: int) -> int:
        """Ask for memory that the trainer maps, too; returns the descriptor of a memory file of `size` bytes. Raises
        ShareRefused."""
        from apollod.wire.messages import Reserve, Share

        self.send(Reserve(size))
        failpoint("engine.memory-asked")
        answer = self.receive()
        if not isinstance(answer, Share):
            reason = answer.error if isinstance(answer, Failure) else f"unexpected answer {type(answer).__name__}"
            raise ShareRefused(f"no shared memory of {size} bytes: {reason}", "free memory, or choose a smaller model")
        return self.take_fd()


def ask(path: str, request: msgspec.Struct, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """Return the body of the daemon's reply to one request. Raises DaemonUnreachable if none answers at `path`; a
    refusal as the error that ends a command with the daemon's exit code, in the daemon's words."""
    channel = Channel(connect(path, timeout_s), _ANSWERS, "the supervisor")
    try:
        channel.send(request)
        answer = channel.receive()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{error.object!r} is not text that UTF-8 can hold", "give it in UTF-8") from error
    finally:
        channel.close()
    if isinstance(answer, Failure):
        raise refusal(answer.code, answer.error, answer.hint)
    return dict(answer.body)
