"""Checks a configured URL or address, without loading an HTTP client. Pure."""

import os
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

UNIX = "unix:"
FORM = '"127.0.0.1:8001" or "unix:/run/apollod/control.sock"'
"""how an address to listen at is written"""


def is_url(text: str) -> bool:
    """True if the text is meant as a URL (http or https)."""
    return text.lower().startswith(("http://", "https://"))


def problem(url: str) -> str:
    """Reason why the URL cannot be used; empty if it can. Does not repeat the URL, which may hold a secret."""
    if any(character <= " " or character == "\x7f" for character in url):
        return "a URL with a space or a control character in it"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "no URL: its host or port is malformed"
    if not parts.hostname:
        return "a URL without a host"
    return "a URL with port 0" if port == 0 else ""


def origin(url: str) -> str:
    """Scheme, host and port: the part of a URL that may be shown when its path or user may be a secret."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}" + (f":{parts.port}" if parts.port else "")


def is_loopback(host: str) -> bool:
    """True if a configured listening address is reachable only from this machine."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


class ListenAddress(NamedTuple):
    """Where a server listens: at `path`, a Unix socket, if there is one; else at host and port."""

    host: str
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{UNIX}{self.path}" if self.path else f"{host}:{self.port}"

    @property
    def local(self) -> bool:
        """True if only processes of this machine reach it."""
        return bool(self.path) or is_loopback(self.host)


def listen_address(text: str) -> ListenAddress:
    """The address that a text names. Raises ValueError, which says what it has to look like."""
    if text.startswith(UNIX):
        path = text.removeprefix(UNIX)
        if not os.path.isabs(path) or "\0" in path:
            raise ValueError(f"{text!r} names no absolute path; write it as {FORM}")
        return ListenAddress("localhost", 0, path)
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not colon or not bare or (":" in bare) != (host != bare) or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is no host and port; write it as {FORM}")
    return ListenAddress(bare, int(port))
