"""Reads the body of a request, and asks the supervisor: what every route of ours needs."""

from starlette.requests import Request

from apollod.adapters.ipc.channel import Link
from apollod.errors import ConfigError
from apollod.wire import messages as msg

BODY_BYTES_MAX = 16 << 20


class Refusal(Exception):
    """Refuses a request: status, error and hint."""


async def read_body(request: Request, too_long: str) -> bytes:
    """The body; never holds more than BODY_BYTES_MAX of it. Raises Refusal with the hint `too_long`."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            raise Refusal(413, f"the body is over {BODY_BYTES_MAX} bytes", too_long)
    return bytes(body)


def exchange(path: str, message: msg.Request, timeout_s: float) -> msg.Reply | msg.Failure:
    """The supervisor's answer to one request, on a connection of its own. Blocks; raises DaemonUnreachable and
    LinkClosed."""
    link = Link.connect(path, timeout_s)
    try:
        link.send(message)
        answer = link.receive()
    finally:
        link.close()
    if not isinstance(answer, msg.Reply | msg.Failure):
        raise ConfigError(
            f"the supervisor answered with {type(answer).__name__}", "use one version of apollod everywhere"
        )
    return answer
