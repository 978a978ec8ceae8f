"""Addresses and network interfaces of this machine, as the system's routes have them. Nothing is sent."""

import fcntl
import ipaddress
import socket
import struct
from pathlib import Path

_SIOCGIFADDR = 0x8915  # netdevice(7): the IPv4 address of an interface
_ADDRESS_AT = 20  # of struct ifreq: a name of 16 bytes, then sockaddr_in with the address at its fifth byte


def address_towards(address: str, port: int) -> str:
    """This machine's address as seen from `address`, to listen at that one alone: of a loopback address, a loopback
    address. Raises OSError."""
    found = socket.getaddrinfo(address, port, type=socket.SOCK_DGRAM)
    family, kind, protocol, _, target = min(found, key=lambda one: one[0] != socket.AF_INET)
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(target)  # of datagrams: only asks for the route, sends nothing
        return str(probe.getsockname()[0])


def interface_towards(address: str, port: int) -> str:
    """Name of the interface by which `address` is reached; empty if none has the address that it would see. Raises
    OSError."""
    own = ipaddress.ip_address(address_towards(address, port).partition("%")[0])
    if own.is_loopback:
        return "lo"
    return _by_ipv4(own.packed) if own.version == 4 else _by_ipv6(own.packed)


def _by_ipv4(address: bytes) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asked, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:  # it has none
                continue
            if answer[_ADDRESS_AT : _ADDRESS_AT + 4] == address:
                return name
    return ""


def _by_ipv6(address: bytes) -> str:
    for line in Path("/proc/net/if_inet6").read_text().splitlines():
        digits, *_, name = line.split()
        if bytes.fromhex(digits) == address:
            return name
    return ""
