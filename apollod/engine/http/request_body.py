"""Changes the body of a request on its way to vLLM's handlers."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
"""Source: the ASGI specification, HTTP connection scope."""


async def with_body(scope: Scope, receive: Receive, change: Callable[[bytes], bytes]) -> tuple[Scope, Receive]:
    """The same request with its body changed, once it is complete; a disconnect is passed on."""
    chunks: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return scope, _first(message, receive)
        chunks.append(message.get("body", b""))
        if not message.get("more_body"):
            break
    body = change(b"".join(chunks))
    headers = [(k, str(len(body)).encode() if k == b"content-length" else v) for k, v in scope["headers"]]
    return {**scope, "headers": headers}, _first({"type": "http.request", "body": body, "more_body": False}, receive)


def route_of(scope: Scope) -> str:
    """The path relative to the server's mount point."""
    return str(scope["path"]).removeprefix(scope.get("root_path", ""))


def _first(message: Message, receive: Receive) -> Receive:
    """A `receive` that returns `message` once and then calls the real one."""
    left = [message]

    async def replayed() -> Message:
        return left.pop() if left else await receive()

    return replayed
