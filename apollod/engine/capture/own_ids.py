"""Response ids that no client chose: an ASGI middleware, added by our plugin if answers are kept.

vLLM names a response after the header X-Request-Id or the field `request_id`, if a client sends one. Two clients may
send the same, or one of them the same twice, so that an id would name an answer that its client never saw. Here every
request gets an id of our own in place of the client's, and only answers under that id are kept (`capturing_client`).
"""

import uuid
from contextvars import ContextVar

import msgspec

from apollod.engine.http.request_body import App, Receive, Scope, Send, route_of, with_body

HEADER = b"x-request-id"  # vllm/entrypoints/serve/engine/serving.py, `_base_request_id`: it precedes the body's
RESPONSES = "/v1/responses"  # takes its id from the body alone (vllm/entrypoints/openai/responses/protocol.py)

own_id: ContextVar[str] = ContextVar("own_id", default="")
"""Id of the HTTP request being handled; empty outside of a request."""


class OwnIds:
    """The middleware. Other readers of X-Request-Id, such as vLLM's own middleware that echoes it, run before this one
    and see the client's id."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        own = uuid.uuid4().hex
        others = [(name, value) for name, value in scope["headers"] if name.lower() != HEADER]
        scope = {**scope, "headers": [*others, (HEADER, own.encode())]}
        if route_of(scope) == RESPONSES:
            scope, receive = await with_body(scope, receive, lambda body: with_request_id(body, f"resp_{own}"))
        token = own_id.set(own)
        try:
            await self._app(scope, receive, send)
        finally:
            own_id.reset(token)


def with_request_id(body: bytes, request_id: str) -> bytes:
    """The JSON object `body` with this `request_id`; all other values keep their bytes. A body that msgspec cannot read
    is returned unchanged, and its answer is not kept."""
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return body
    fields["request_id"] = msgspec.Raw(msgspec.json.encode(request_id))
    return msgspec.json.encode(fields)
