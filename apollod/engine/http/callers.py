"""Authorises callers of our routes: a process with a key; if none is configured, and on a loopback address, any process
of this daemon's user and of root.

Another user of the machine can reach a loopback address, too, and the control socket is closed to them. So the user
whose process is at the other end of a connection is looked up in the system's table of connections (Linux, proc_net(5):
/proc/self/net/tcp and tcp6).
"""

import asyncio
import base64
import hashlib
import os
import secrets
import socket
import stat
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any, NamedTuple

from apollod.adapters.system.web_address import is_loopback
from apollod.engine.http.guard import Refused
from apollod.engine.http.request_body import App, Receive, Scope, Send

TRANSPORT = "apollod.transport"
"""key of a scope for the connection of its request"""
KEY_BYTES_MAX = 4096
THREADS = 2  # for reading system files, which takes a millisecond
TABLES = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
_ESTABLISHED = 1  # include/net/tcp_states.h
_UCRED = struct.Struct("3i")  # pid, uid and gid of unix(7)
_TRIES = 2  # the table may skip a row while others are removed


class Connections:
    """ASGI middleware that keeps the connection of each request for `Callers`.

    The scope's own `client` comes from a header: uvicorn trusts X-Forwarded-For, port included, from every client on a
    loopback address. `receive` is a bound method of uvicorn's object that has the connection.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Source: the ASGI specification, HTTP connection scope."""
        scope[TRANSPORT] = transport_of(receive)
        await self._app(scope, receive, send)


class Callers:
    """The authorisation rule. `listener`: the server's configured address; `keys`: the engine's; `key_file`: holds
    another key for our routes, and is read whenever a key is offered."""

    def __init__(self, listener: str, keys: Sequence[str], key_file: Path | None) -> None:
        self._keys = [_digest(key) for key in keys]
        self._key_file = key_file
        self._threads = ThreadPoolExecutor(THREADS, "apollod-callers")
        self._by_user = not keys and is_loopback(listener) and TABLES[0].exists()

    async def refusal(self, scope: Scope, authorization: str, basic: bool = False) -> Refused | None:
        """The refusal of a request; None if it is allowed. `authorization`: the header. `basic`: the key may also be
        the password of a basic authorization (RFC 7617), which clients send for a URL http://x:KEY@HOST."""
        scheme, _, token = authorization.partition(" ")
        offered = _digest(token) if scheme.lower() == "bearer" else None
        if basic and scheme.lower() == "basic":
            offered = _digest(password_of(token))
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
        connection = connection_of(transport)
        if connection is None:
            return False
        with connection:
            return await self._in_thread(uid_of_peer, connection) in (os.getuid(), 0)

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


def password_of(credentials: str) -> str:
    """The password in basic credentials; "" if they are none."""
    try:
        return base64.b64decode(credentials, validate=True).decode("utf-8", "replace").partition(":")[2]
    except ValueError:
        return ""


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


# --- the other end of a connection ------------------------------------------------------------------------------------


Address = tuple[IPv4Address | IPv6Address, int]


def transport_of(receive: Receive) -> asyncio.BaseTransport | None:
    """The connection behind uvicorn's `receive`; None behind another one."""
    return getattr(getattr(receive, "__self__", None), "transport", None)


def connection_of(transport: asyncio.BaseTransport | None) -> socket.socket | None:
    """A socket of our own on a connection, to be closed by the caller; None if the connection is not known or ends."""
    if transport is None or transport.is_closing():
        return None
    return socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))


class Row(NamedTuple):
    """One end of an established connection that a process holds."""

    local: Address
    remote: Address
    uid: int


def uid_of_peer(connection: socket.socket) -> int | None:
    """Return the user who opened the other end of a TCP connection, or of one to a Unix socket; None if that is not
    visible: the end is on another machine or in another network namespace, or has been closed."""
    if connection.family == socket.AF_UNIX:
        _, uid, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
        return int(uid)
    try:
        ends = address_of(connection.getpeername()), address_of(connection.getsockname())
        for _ in range(_TRIES):
            found = next((row.uid for row in _rows(ends[0][1]) if (row.local, row.remote) == ends), None)
            if found is not None:
                # A reset connection leaves its port to the next one, of any user, while data that was sent before is
                # still read. Still connected: both ends were the same while the table was read.
                connection.getpeername()
                return found
    except OSError:
        return None
    return None


def rows_of(table: Iterable[str]) -> list[Row]:
    """Rows of one table, given as its lines. Ends that no process holds any more show uid 0 and are left out, as are
    all that are not established."""
    found = []
    for line in table:
        fields = line.split()
        if len(fields) > 9 and fields[0] != "sl" and int(fields[3], 16) == _ESTABLISHED and fields[9] != "0":
            found.append(Row(_address(fields[1]), _address(fields[2]), int(fields[7])))
    return found


def address_of(name: tuple[str, int] | tuple[str, int, int, int]) -> Address:
    """Address and port of a socket; an IPv4 address mapped into IPv6 becomes plain IPv4."""
    return _plain(ip_address(name[0])), name[1]


def _rows(port: int) -> Iterator[Row]:
    """Rows that name a port: a busy machine has thousands of others."""
    named = f":{port:04X} "
    for table in TABLES:
        if table.exists():
            yield from rows_of(line for line in table.read_text().splitlines() if named in line)


def _address(text: str) -> Address:
    """Parse an address, 32-bit words in the byte order of this machine in hexadecimal digits, and its port."""
    words, _, port = text.partition(":")
    packed = b"".join(struct.pack("=I", int(words[at : at + 8], 16)) for at in range(0, len(words), 8))
    return _plain(ip_address(packed)), int(port, 16)


def _plain(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address
