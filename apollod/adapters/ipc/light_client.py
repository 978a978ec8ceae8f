"""Connects to the supervisor's socket, and fetches the daemon's status as a plain JSON object. Imports nothing heavy,
not even msgspec: its import took half the time of `apollod ctl status`."""

import socket
from contextlib import closing
from typing import Any

from apollod.errors import DaemonUnreachable, FrameError, LinkClosed, refusal
from apollod.wire.light_msgpack import decode

TIMEOUT_S = 10.0
HEADER_BYTES = 4
ANSWER_BYTES_MAX = 64 << 20
STATUS_REQUEST = b"\x81\xa4type\xa6status"
"""`control_messages.StatusRequest` in msgpack"""


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


def ask_status(path: str, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """Return the status object. Raises DaemonUnreachable if no daemon answers at `path`, and the daemon's refusal as an
    error."""
    with closing(connect(path, timeout_s)) as sock:
        try:
            sock.sendall(len(STATUS_REQUEST).to_bytes(HEADER_BYTES, "big") + STATUS_REQUEST)
            length = int.from_bytes(_exactly(sock, HEADER_BYTES), "big")
            if length > ANSWER_BYTES_MAX:
                raise FrameError(f"a frame announces {length} bytes", "this is not an apollod")
            payload = _exactly(sock, length)
        except TimeoutError as error:
            raise silent() from error
        except OSError as error:
            raise LinkClosed(f"the socket to the supervisor is closed ({error})") from error
    try:
        answer = decode(payload)
        if answer["type"] == "failure":
            raise refusal(answer.get("code", 1), answer["error"], answer.get("hint", ""))
        return dict(answer["body"])
    except (ValueError, TypeError, KeyError) as error:
        what = f"not a message of this protocol: {error}"
        raise FrameError(what, "use one version of apollod everywhere") from error


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = sock.recv(count - len(data))
        if not piece:
            raise LinkClosed("the supervisor closed the socket")
        data += piece
    return bytes(data)
