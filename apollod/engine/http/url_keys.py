"""Lets a key be the password of a URL on vLLM's own routes, too: http://x:KEY@HOST. vLLM takes `Authorization: Bearer`
only, and clients of trainers (TRL) have no place for it. Added by vLLM's `--middleware`, whose are the first to run: a
plugin's run behind the check of the key."""

from apollod.engine.http.callers import password_of
from apollod.engine.http.request_body import App, Receive, Scope, Send, route_of

PREFIX = "/v1/"
BROWSERS = frozenset({b"origin", b"sec-fetch-site"})
"""Headers of pages: a browser sends a password that it remembers, whichever page asks."""


class UrlKeys:
    """ASGI middleware that turns a basic authorization (RFC 7617) into the key alone."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Source: the ASGI specification, HTTP connection scope."""
        await self._app(with_bearer(scope) if scope["type"] == "http" else scope, receive, send)


def with_bearer(scope: Scope) -> Scope:
    """The request with its key as vLLM wants it; the same where it is none of a program for vLLM's routes."""
    names = {name for name, _ in scope["headers"]}
    if b"authorization" not in names or names & BROWSERS or not route_of(scope).startswith(PREFIX):
        return scope
    headers = [(name, _bearer(value) if name == b"authorization" else value) for name, value in scope["headers"]]
    return {**scope, "headers": headers}


def _bearer(authorization: bytes) -> bytes:
    scheme, _, credentials = authorization.decode("latin-1").partition(" ")
    password = password_of(credentials) if scheme.lower() == "basic" else ""
    return f"Bearer {password}".encode("latin-1", "replace") if password else authorization
