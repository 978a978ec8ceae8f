"""Authorises callers of our routes: a process with a key; if none is configured, and on a loopback address, any process
of this daemon's user and of root.

Another user of the machine can reach a loopback address, too, and the control socket is closed to them.
"""

import asyncio
import hashlib
import os
import secrets
import socket
import stat
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from apollod.adapters.ipc import tcp_peer
from apollod.adapters.system.web_address import is_loopback
from apollod.engine.http.guard import Refused
from apollod.engine.http.request_body import App, Receive, Scope, Send

TRANSPORT = "apollod.transport"
"""key of a scope for the connection of its request"""
KEY_BYTES_MAX = 4096
THREADS = 2  # for reading system files, which takes a millisecond


class Connections:
    """ASGI middleware that keeps the connection of each request for `Callers`.

    The scope's own `client` comes from a header: uvicorn trusts X-Forwarded-For, port included, from every client on a
    loopback address. `receive` is a bound method of uvicorn's object that has the connection.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Source: the ASGI specification, HTTP connection scope."""
        scope[TRANSPORT] = getattr(getattr(receive, "__self__", None), "transport", None)
        await self._app(scope, receive, send)


class Callers:
    """The authorisation rule. `listener`: the server's configured address; `keys`: the engine's; `key_file`: holds
    another key for our routes, and is read whenever a key is offered."""

    def __init__(self, listener: str, keys: Sequence[str], key_file: Path | None) -> None:
        self._keys = [_digest(key) for key in keys]
        self._key_file = key_file
        self._threads = ThreadPoolExecutor(THREADS, "apollod-callers")
        self._by_user = not keys and is_loopback(listener) and tcp_peer.can_tell()

    async def refusal(self, scope: Scope, authorization: str) -> Refused | None:
        """The refusal of a request; None if it is allowed. `authorization`: the header."""
        scheme, _, token = authorization.partition(" ")
        offered = _digest(token) if scheme.lower() == "bearer" else None
        if offered and await self._in_thread(self._opens, offered):
            return None
        if self._keys:
            return Refused(401, "no or wrong API key", "send the engine's key as `Authorization: Bearer KEY`")
        if not self._by_user or await self._is_ours(scope.get(TRANSPORT)):
            return None
        return Refused(
            403,
            f"this route is for the user that runs apollod (uid {os.getuid()})",
            "send the key in the file `key` of its state directory as `Authorization: Bearer KEY`, or set [engine] "
            "api_key",
        )

    def _opens(self, offered: bytes) -> bool:
        keys = [*self._keys, *([_digest(key)] if (key := key_in(self._key_file)) else [])]
        return any([secrets.compare_digest(offered, key) for key in keys])  # compare with all, in constant time

    async def _is_ours(self, transport: asyncio.BaseTransport | None) -> bool:
        if transport is None or transport.is_closing():
            return False
        with socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno())) as connection:
            return await self._in_thread(tcp_peer.uid_of_peer, connection) in (os.getuid(), 0)

    async def _in_thread(self, work: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *args)


def key_in(file: Path | None) -> str:
    """The key in a file; "" if others can read or write the file, or another user owns it."""
    if file is None:
        return ""
    try:
        with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
            found = os.fstat(opened.fileno())
            closed = stat.S_ISREG(found.st_mode) and not found.st_mode & 0o077 and found.st_uid in (os.getuid(), 0)
            return opened.read(KEY_BYTES_MAX).decode("utf-8", "replace").strip() if closed else ""
    except OSError:
        return ""


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
