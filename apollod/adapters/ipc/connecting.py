"""Connects to the supervisor's socket. Imports nothing heavy: `apollod ctl status` uses it."""

import socket

from apollod.errors import DaemonUnreachable


def connect(path: str, timeout_s: float | None = None) -> socket.socket:
    """Connect to the supervisor's socket. `timeout_s` bounds every later wait too.

    Raises DaemonUnreachable, or NotPermitted where the socket is another user's.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    sock.settimeout(timeout_s)
    try:
        sock.connect(path)
    except PermissionError as error:
        sock.close()
        from apollod.permission import denied  # here for start-up time

        raise denied(path) from error
    except (OSError, ValueError) as error:
        sock.close()
        raise DaemonUnreachable(
            f"no apollod answers at {path} ({error})", "start it with `apollod run`, or name its socket with --socket"
        ) from error
    return sock


def silent() -> DaemonUnreachable:
    """Error for an answer that did not come within the time limit."""
    return DaemonUnreachable("apollod did not answer in time", "look at its log")
