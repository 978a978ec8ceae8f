"""A blocking connection to the supervisor, for engine and trainer."""

import socket

from apollod.adapters.ipc.channel import Channel
from apollod.adapters.ipc.connecting import connect
from apollod.wire import messages


class Link(Channel[messages.FromSupervisor]):
    """One connection to the supervisor."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock, messages.FROM_SUPERVISOR, "the supervisor")

    @classmethod
    def connect(cls, path: str, timeout_s: float | None = None) -> "Link":
        """Connect to the supervisor's socket; see `connecting.connect`."""
        return cls(connect(path, timeout_s))
