"""Checks the engine's port before any request to the model: is it free, and does the engine answer."""

import errno
import socket

import anyio

HEALTH_TIMEOUT_S = 5.0


async def healthy(host: str, port: int) -> bool:
    """GET /health: 200 only once the engine core is up (vLLM entrypoints/serve health route)."""
    try:
        with anyio.fail_after(HEALTH_TIMEOUT_S):
            async with await anyio.connect_tcp(host, port) as stream:
                await stream.send(f"GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
                return (await stream.receive(64)).split(b" ")[1:2] == [b"200"]
    except (OSError, TimeoutError, anyio.EndOfStream, anyio.BrokenResourceError):
        return False


def port_in_use(host: str, port: int) -> bool:
    """True if the engine would fail to listen there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False
