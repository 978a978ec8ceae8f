"""A blocking framed socket to the supervisor: what engine, trainer and `apollod ctl` use.

Descriptors that travel beside frames (SCM_RIGHTS) are collected in order and handed out by `take_fd`. Imports nothing
heavy: `apollod ctl status` goes through here and has to answer in well under 150 ms.
"""

import os
import socket
import threading
from collections import deque

import msgspec

from apollod.errors import DaemonUnreachable, FrameError, LinkClosed
from apollod.permission import denied
from apollod.wire import messages
from apollod.wire.framing import FrameDecoder, encode_frame

RECEIVE_BYTES = 1 << 20
FDS_MAX = 8  # a frame carries at most one descriptor; the kernel hands over what lies in one read
_decoder: msgspec.msgpack.Decoder[messages.FromSupervisor] = msgspec.msgpack.Decoder(messages.FromSupervisor)


class Link:
    """One connection. `send` may be called from several threads; `receive` from one."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._frames: deque[bytes] = deque()
        self._fds: deque[int] = deque()
        self._framing = FrameDecoder()
        self._sending = threading.Lock()

    @classmethod
    def connect(cls, path: str, timeout_s: float | None = None) -> "Link":
        """Connect to the supervisor's socket; raises DaemonUnreachable, or NotPermitted where it is another user's. `timeout_s` bounds
        every later wait too."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        sock.settimeout(timeout_s)
        try:
            sock.connect(path)
        except PermissionError as error:
            sock.close()
            raise denied(path) from error
        except (OSError, ValueError) as error:
            sock.close()
            raise DaemonUnreachable(
                f"no apollod answers at {path} ({error})", "start it with `apollod run`, or name its socket with --socket"
            ) from error
        return cls(sock)

    def send(self, message: msgspec.Struct) -> None:
        """Send one message; raises LinkClosed when the supervisor is gone."""
        frame = encode_frame(messages.encode(message))
        try:
            with self._sending:
                self._sock.sendall(frame)
        except OSError as error:
            raise LinkClosed(f"the supervisor's socket is closed ({error})") from error

    def receive(self) -> messages.FromSupervisor:
        """The next message; raises LinkClosed at the end of the stream, FrameError on what is no message."""
        while not self._frames:
            try:
                data, fds, _, _ = socket.recv_fds(self._sock, RECEIVE_BYTES, FDS_MAX)
            except TimeoutError as error:
                raise DaemonUnreachable("apollod did not answer in time", "look at its log") from error
            except OSError as error:
                raise LinkClosed(f"the supervisor's socket is closed ({error})") from error
            self._fds.extend(fds)
            if not data:
                raise LinkClosed("the supervisor closed the socket")
            self._frames.extend(self._framing.feed(data))
        try:
            return _decoder.decode(self._frames.popleft())
        except msgspec.MsgspecError as error:
            raise FrameError(f"not a message of this protocol: {error}", "use one version of apollod everywhere") from error

    def take_fd(self) -> int:
        """The descriptor that came with the latest `Share`; the caller owns it."""
        if not self._fds:
            raise FrameError("a descriptor was announced but did not come", "use one version of apollod everywhere")
        fd = self._fds.popleft()
        os.set_inheritable(fd, False)
        return fd

    def close(self) -> None:
        """Close the socket and every descriptor nobody took."""
        self._sock.close()
        while self._fds:
            os.close(self._fds.popleft())
