"""Finds the user whose process is at the other end of a TCP connection within this machine, from the system's table of
connections (Linux, proc_net(5): /proc/self/net/tcp and tcp6).
"""

import socket
import struct
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import NamedTuple

TABLES = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
_ESTABLISHED = 1  # include/net/tcp_states.h
_TRIES = 2  # the table may skip a row while others are removed

Address = tuple[IPv4Address | IPv6Address, int]


class Row(NamedTuple):
    """One end of an established connection that a process holds."""

    local: Address
    remote: Address
    uid: int


def can_tell() -> bool:
    """True if this system has such a table."""
    return TABLES[0].exists()


def uid_of_peer(connection: socket.socket) -> int | None:
    """Return the user who opened the other end of a TCP connection; None if that is not visible: the end is on another
    machine or in another network namespace, or has been closed."""
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
