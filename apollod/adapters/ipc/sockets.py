"""The supervisor's Unix socket: mode 0600 in a directory that only its user may write, peers of the same user only,
frames of limited length.

A message may carry one file descriptor (SCM_RIGHTS): it is sent with a small frame of its own, so that the descriptor
is attached to exactly that frame however the stream is split.
"""

import os
import socket
import stat
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import cast

import anyio
import msgspec
from anyio.abc import Listener, SocketAttribute, TaskGroup, UNIXSocketStream

from apollod.errors import ApolloError, ConfigError, LinkClosed, NotPermitted
from apollod.wire import messages
from apollod.wire.framing import MessageDecoder, encode_message

SUN_PATH_MAX = 107  # bytes of a socket path, sockaddr_un


async def listen(path: Path) -> Listener[UNIXSocketStream]:
    """Listen at `path`. Call with the state directory's lock held: any socket found there is then stale."""
    make_place(path)
    before = os.umask(0o177)
    try:
        return cast(Listener[UNIXSocketStream], await anyio.create_unix_listener(path))
    finally:
        os.umask(before)


def make_place(path: Path, move: str = "set RUNTIME_DIRECTORY to") -> None:
    """Make the directory for the socket and remove a stale socket. A new directory is accessible to us alone; an
    existing one keeps its owner and mode. Raises ConfigError; `move`: how the socket gets elsewhere, for its hints."""
    if len(os.fsencode(path)) > SUN_PATH_MAX:
        raise ConfigError(
            f"the socket path {path} has {len(os.fsencode(path))} bytes, the system's limit is {SUN_PATH_MAX}",
            f"{move} a short path such as /run/apollod",
        )
    directory = path.parent
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    mode = directory.stat().st_mode
    if mode & (stat.S_IWGRP | stat.S_IWOTH):  # others could put a socket there, which our children would talk to
        raise ConfigError(
            f"the socket cannot lie in {directory}: others may write there (mode {stat.S_IMODE(mode):04o})",
            f"{move} a directory of the daemon alone such as /run/apollod, or make this one that",
        )
    if path.is_symlink() or (path.exists() and not stat.S_ISSOCK(path.stat().st_mode)):
        raise ConfigError(f"{path} exists and is no socket", "remove it")
    path.unlink(missing_ok=True)


@asynccontextmanager
async def tasks_beside() -> AsyncIterator[TaskGroup]:
    """A task group whose tasks end with the block. An ApolloError or OSError of the block is raised as it is, not in an
    exception group."""
    failed: ApolloError | OSError | None = None
    async with anyio.create_task_group() as tasks:
        try:
            yield tasks
        except (ApolloError, OSError) as error:
            failed = error
        tasks.cancel_scope.cancel()
    if failed is not None:
        raise failed


class Connection:
    """One accepted connection. Raises NotPermitted for a peer of another user."""

    def __init__(self, stream: UNIXSocketStream) -> None:
        self._stream = stream
        self._incoming = MessageDecoder(messages.TO_SUPERVISOR)
        self._sending = anyio.Lock()
        raw = stream.extra(SocketAttribute.raw_socket)
        size = struct.calcsize("3i")
        self.pid, self.uid, _ = struct.unpack("3i", raw.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
        if self.uid not in (os.getuid(), 0):
            raise NotPermitted(f"uid {self.uid} may not talk to this daemon", "run as its user")

    async def receive(self) -> messages.ToSupervisor:
        """Return the next message; LinkClosed at the end, FrameError for an invalid one."""
        while (message := self._incoming.next()) is None:
            try:
                self._incoming.feed(await self._stream.receive())
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
                raise LinkClosed("the peer is gone") from error
        return message

    async def send(self, message: msgspec.Struct, fd: int | None = None) -> None:
        """Send one message, with a descriptor if given; LinkClosed when the peer is gone."""
        frame = encode_message(message)
        try:
            async with self._sending:
                if fd is None:
                    await self._stream.send(frame)
                else:
                    await self._stream.send_fds(frame, [fd])
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
            raise LinkClosed("the peer is gone") from error

    async def left(self) -> None:
        """Return when the peer has closed its end; messages until then are dropped."""
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            while True:
                await self._stream.receive()

    async def close(self) -> None:
        """Close the connection."""
        await self._stream.aclose()
