"""Sockets for HTTP servers, at an address as it is configured: host and port, or a Unix socket."""

import os
import socket
from pathlib import Path

from apollod.adapters.ipc.sockets import make_place
from apollod.adapters.system.web_address import ListenAddress
from apollod.errors import ConfigError


def bound(address: ListenAddress) -> socket.socket:
    """A socket that is bound there and does not listen yet. A Unix socket has mode 0600 and replaces one on which
    nobody listens. Raises ConfigError if the address cannot be had."""
    family = socket.AF_UNIX if address.path else socket.AF_INET6 if ":" in address.host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        if address.path:
            _refuse_living(address)
            make_place(Path(address.path), "move it by [control] listen to")
            os.fchmod(made.fileno(), 0o600)  # what the file is made with (net/unix/af_unix.c, unix_bind_bsd)
            made.bind(address.path)
        else:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((address.host, address.port))
    except OSError as error:
        made.close()
        raise ConfigError(
            f"{address} cannot be listened on: {error.strerror or error}", "set [control] listen to a free address"
        ) from error
    except ConfigError:
        made.close()
        raise
    return made


def try_out(address: ListenAddress) -> None:
    """Raise ConfigError if the address cannot be had now; nothing is left there."""
    with bound(address):
        if address.path:
            os.unlink(address.path)


def _refuse_living(address: ListenAddress) -> None:
    """Raise ConfigError if a process listens on this Unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        try:
            other.connect(address.path)
        except OSError:
            return
    raise ConfigError(f"another process listens on {address}", "stop it, or set [control] listen to another path")
