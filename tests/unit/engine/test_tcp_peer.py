"""Whose process is at the other end of a TCP connection: the system's table, and real connections."""

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.other_user import NOBODY, needs_root

from apollod.engine.http import callers
from apollod.engine.http.callers import Address, Row, address_of, rows_of, uid_of_peer
from apollod.testing.daemon import free_port

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"
REAL = (
    "   1: 0100007F:A02D 0100007F:BF2C 01 00000000:00000000 00:00000000 00000000  1000        0 272237 1 "
    "0000000000000000 20 0 0 10 -1\n"
    "   2: 0000000000000000FFFF00000100007F:1F90 00000000000000000000000001000000:D431 01 00000000:00000000 "
    "00:00000000 00000000     7        0 45 1 0000000000000000 20 4 30 10 -1"
)
"""as Linux 6 writes them on a machine with the low byte first"""

addresses = st.tuples(st.ip_addresses(), st.integers(0, 65535))


@pytest.mark.skipif(struct.pack("=I", 1)[0] != 1, reason="the lines are of a machine with the low byte first")
def test_lines_as_the_system_writes_them() -> None:
    one, other = rows_of([HEAD, *REAL.splitlines()])
    assert one == Row((IPv4Address("127.0.0.1"), 41005), (IPv4Address("127.0.0.1"), 48940), 1000)
    assert other == Row((IPv4Address("127.0.0.1"), 8080), (IPv6Address("::1"), 54321), 7)


def written(address: Address) -> str:
    """As fs/proc writes it: each word of the address in this machine's order."""
    packed, port = address[0].packed, address[1]
    words = [struct.unpack("=I", packed[at : at + 4])[0] for at in range(0, len(packed), 4)]
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"


@given(st.lists(st.tuples(addresses, addresses, st.integers(1, 12), st.integers(0, 2**32 - 1), st.integers(0, 2**40))))
def test_every_established_end_that_is_held_is_found_with_its_user(
    ends: list[tuple[Address, Address, int, int, int]],
) -> None:
    lines = [
        f"{n:4}: {written(local)} {written(remote)} {state:02X} 0000:0000 00:0000 00000000 {uid:5} 0 {inode} 1"
        for n, (local, remote, state, uid, inode) in enumerate(ends)
    ]
    assert rows_of([HEAD, *lines]) == [
        Row(address_of((str(local[0]), local[1])), address_of((str(remote[0]), remote[1])), uid)
        for local, remote, state, uid, inode in ends
        if state == 1 and inode
    ]


@given(st.ip_addresses(v=4), st.integers(0, 65535))
def test_an_address_of_ipv4_within_ipv6_is_the_one_of_ipv4(address: IPv4Address, port: int) -> None:
    assert address_of((f"::ffff:{address}", port, 0, 0)) == (ip_address(address), port)


@pytest.fixture(params=[("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::", "127.0.0.1"), ("::", "::ffff:127.0.0.1")])
def listening(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, tuple[str, int]]]:
    """A listener, and the address to reach it at."""
    at, to = request.param
    try:
        family = socket.AF_INET6 if ":" in at else socket.AF_INET
        listener = socket.create_server((at, 0), family=family, dualstack_ipv6=at == "::")
    except (OSError, ValueError) as error:
        pytest.skip(f"no IPv6 here: {error}")
    with closing(listener):
        yield listener, (to, listener.getsockname()[1])


def test_the_other_end_is_of_the_user_who_opened_it(listening: tuple[socket.socket, tuple[str, int]]) -> None:
    listener, address = listening
    with closing(socket.create_connection(address)), closing(listener.accept()[0]) as accepted:
        assert uid_of_peer(accepted) == os.getuid()


CONNECTING = """
import encodings.idna, os, socket, sys
uid, host, port = sys.argv[1:]
os.setgroups([]); os.setgid(int(uid)); os.setuid(int(uid))
with socket.create_connection((host, int(port)), timeout=30):
    sys.stdin.read()
"""
"""a process of its own: to change the user of this one waits for all its threads, and other tests leave some"""


@needs_root
def test_of_another_user_too(listening: tuple[socket.socket, tuple[str, int]]) -> None:
    listener, address = listening
    command = [sys.executable, "-c", CONNECTING, str(NOBODY), *map(str, address)]
    with subprocess.Popen(command, stdin=subprocess.PIPE), closing(listener.accept()[0]) as accepted:
        assert uid_of_peer(accepted) == NOBODY


@pytest.mark.parametrize("how", ["closed", "reset"])
def test_of_an_end_that_was_closed_nothing_is_said(how: str) -> None:
    """The system's table has uid 0 for one that is closed and waits for our end."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        opened = socket.create_connection(listener.getsockname())
        accepted = listener.accept()[0]
        opened.sendall(b"a request")
        if how == "reset":
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        opened.close()
        with closing(accepted):
            assert uid_of_peer(accepted) is None
            assert accepted.recv(100) == b"a request"


def test_whoever_takes_the_port_of_a_connection_that_was_reset_is_not_its_other_end() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = free_port()  # one that the kernel gives to nobody meanwhile
        first = socket.create_connection(listener.getsockname(), source_address=("127.0.0.1", port))
        before = listener.accept()[0]
        first.sendall(b"a request")
        first.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        first.close()
        second = socket.create_connection(listener.getsockname(), source_address=("127.0.0.1", port))
        with closing(second), closing(before), closing(listener.accept()[0]) as accepted:
            assert uid_of_peer(accepted) == os.getuid()
            assert uid_of_peer(before) is None
            assert before.recv(100) == b"a request"


def test_that_port_taken_while_the_table_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table already has the other user's connection, and what we hold is reset: the last look finds that."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        opened = socket.create_connection(listener.getsockname())
        accepted = listener.accept()[0]
        rows = [Row(address_of(opened.getsockname()), address_of(accepted.getsockname()), 0)]

        def read(port: int) -> Iterator[Row]:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            opened.close()
            yield from rows

        monkeypatch.setattr(callers, "_rows", read)
        with closing(accepted):
            assert uid_of_peer(accepted) is None


def test_a_socket_without_another_end() -> None:
    with closing(socket.socket()) as alone:
        assert uid_of_peer(alone) is None
