"""Connects to the supervisor's socket, and fetches the daemon's status as a plain JSON object, read from msgpack.
Imports nothing heavy, not even msgspec: its import took half the time of `apollod ctl status`.
"""

import socket
from contextlib import closing
from struct import error as StructError
from struct import unpack_from
from typing import Any

from apollod.errors import DaemonUnreachable, FrameError, LinkClosed, refusal

TIMEOUT_S = 10.0
HEADER_BYTES = 4
ANSWER_BYTES_MAX = 64 << 20
STATUS_REQUEST = b"\x81\xa4type\xa6status"
"""`control_messages.StatusRequest` in msgpack"""

_NUMBERS = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i",
    0xD3: ">q",
}  # fmt: skip
_WIDTHS = {">f": 4, ">d": 8, ">B": 1, ">H": 2, ">I": 4, ">Q": 8, ">b": 1, ">h": 2, ">i": 4, ">q": 8}
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_LENGTHS = {
    0xD9: (">B", "text"), 0xDA: (">H", "text"), 0xDB: (">I", "text"), 0xDC: (">H", "list"), 0xDD: (">I", "list"),
    0xDE: (">H", "object"), 0xDF: (">I", "object"),
}  # fmt: skip


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


def ask_status(path: str) -> dict[str, Any]:
    """Return the status object. Raises DaemonUnreachable if no daemon answers at `path`, and the daemon's refusal as an
    error."""
    with closing(connect(path, TIMEOUT_S)) as sock:
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


def decode(data: bytes) -> Any:
    """The single value in `data`. Raises ValueError for anything else, or for other types."""
    try:
        value, end = _value(data, 0)
    except (StructError, IndexError, RecursionError) as error:
        raise ValueError(f"msgpack that ends early or nests too deep: {error}") from error
    if end != len(data):
        raise ValueError(f"{len(data) - end} bytes after the end of a value")
    return value


def _value(data: bytes, at: int) -> tuple[Any, int]:
    """The value at an offset, and the offset after it."""
    tag = data[at]
    at += 1
    if tag < 0x80:
        return tag, at
    if tag >= 0xE0:
        return tag - 0x100, at
    if tag in _CONSTANTS:
        return _CONSTANTS[tag], at
    if tag in _NUMBERS:
        form = _NUMBERS[tag]
        return unpack_from(form, data, at)[0], at + _WIDTHS[form]
    if tag < 0xC0:
        kind = "object" if tag < 0x90 else "list" if tag < 0xA0 else "text"
        length = tag & (0x1F if kind == "text" else 0x0F)
    elif tag in _LENGTHS:
        form, kind = _LENGTHS[tag]
        length = unpack_from(form, data, at)[0]
        at += _WIDTHS[form]
    else:
        raise ValueError(f"the msgpack type {tag:#04x} is not one of JSON's")
    return _sized(data, at, kind, length)


def _sized(data: bytes, at: int, kind: str, length: int) -> tuple[Any, int]:
    if kind == "text":
        if at + length > len(data):
            raise IndexError("text")
        return data[at : at + length].decode(), at + length
    values = []
    for _ in range(length if kind == "list" else 2 * length):
        value, at = _value(data, at)
        values.append(value)
    return values if kind == "list" else dict(zip(values[::2], values[1::2], strict=True)), at
