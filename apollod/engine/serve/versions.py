"""Labels responses with the weights that they saw, and keeps versions apart in the prefix cache: an ASGI middleware,
added by our plugin.

Every answer of an endpoint that generates carries `X-Apollod-Weights-Version: 12`, or `12-14` when steps 13 and 14 were
completed while it was generated (hogwild: one more may have been under way). The headers of a stream leave before its
first token, so they have the first version only; the whole span comes as an SSE comment after the stream's last event,
where every client has either stopped reading or skips comments. Nothing is buffered on the way out.

Unless `[trainer] cache` is "keep", a request's `cache_salt` (vLLM hashes it into the first block of a prefix) gets a
text appended that no other announcement of weights had. For that the body is read as a whole, which vLLM would do next;
the version and the salt are those of the moment when it has come.
"""

import hashlib
import json
import re

import msgspec

from apollod.engine.http.request_body import App, Message, Receive, Scope, Send, route_of, with_body

HEADER = b"x-apollod-weights-version"
COMMENT = ": apollod-weights-version {}\n\n"
SALT_CHARACTERS_MAX = 100  # of the client's own; vLLM 0.32 takes 128 in all (entrypoints/generate/base/protocol.py)
GENERATES = re.compile(
    r"/v1/(completions|chat/completions|chat/completions/batch|responses|messages|systemone)"
    r"|/inference/v1/generate|/generative_scoring|/invocations"
)
"""Endpoints whose body has `cache_salt` (vllm/entrypoints/openai, anthropic, scale_out, generate, and serve/sagemaker,
which takes any of their bodies; 0.32)."""


class Served:
    """What the engine was last told; read and written on the server's loop. `salt` is empty until prefixes of older
    weights may not be found any more, `active` counts requests that generate now."""

    def __init__(self) -> None:
        self.version: int | None = None
        self.salt = ""
        self.active = 0
        self._turns = 0

    def announce(self, version: int, salted: bool) -> None:
        """The weights are `version` now; `salted`: what comes from now on finds no prefix of before."""
        self.version = version
        if salted:
            self.turn()

    def turn(self) -> None:
        """A salt that was never used before.

        A version alone would not do. After a rollback it comes again, and requests that began under it may have run on,
        or been overtaken by the next step's writes: their prefixes are of weights that were undone."""
        self._turns += 1
        self.salt = f"w{self.version}.{self._turns}"

    def span(self, first: int) -> str:
        """`first`, or `first-last` when the version has changed since."""
        return f"{first}" if self.version in (first, None) else f"{first}-{self.version}"


class VersionLabels:
    """The middleware. Requests that came before the first version is known pass as they are."""

    def __init__(self, app: App, served: Served) -> None:
        self._app = app
        self._served = served

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Source: the ASGI specification, HTTP connection scope."""
        served = self._served
        if scope["type"] != "http" or scope["method"] != "POST" or served.version is None or not _generates(scope):
            await self._app(scope, receive, send)
            return
        if served.salt:
            # however long the body took to come, the salt is the one of now
            scope, receive = await with_body(scope, receive, lambda body: with_salt(body, served.salt))
        first = served.version
        self._served.active += 1
        try:
            await self._app(scope, receive, self._labelled(send, first))
        finally:
            self._served.active -= 1

    def _labelled(self, send: Send, first: int) -> Send:
        stream = False

        async def labelled(message: Message) -> None:
            nonlocal stream
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                stream = any(k.lower() == b"content-type" and v.startswith(b"text/event-stream") for k, v in headers)
                message = {**message, "headers": [*headers, (HEADER, self._served.span(first).encode())]}
            elif message["type"] == "http.response.body" and stream and not message.get("more_body"):
                message = {
                    **message,
                    "body": message.get("body", b"") + COMMENT.format(self._served.span(first)).encode(),
                }
            await send(message)

        return labelled


def _generates(scope: Scope) -> bool:
    return GENERATES.fullmatch(route_of(scope)) is not None


def with_salt(body: bytes, salt: str) -> bytes:
    """The JSON object `body` with `cache_salt`: `salt`, after the client's own where it has one. All other values
    stay the bytes they were. What is no such object is returned as it is, for vLLM to say what is wrong with it."""
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        own = msgspec.json.decode(fields.get("cache_salt", b"null"), type=str | None)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _with_salt_as_python_reads(body, salt)
    if own == "":
        return body
    fields["cache_salt"] = msgspec.Raw(msgspec.json.encode(_extended(own, salt)))
    return msgspec.json.encode(fields)


def _with_salt_as_python_reads(body: bytes, salt: str) -> bytes:
    """The same for what only Python's own `json` reads, as vLLM does: UTF-16 and UTF-32, NaN, half a surrogate pair."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return body
    own = fields.get("cache_salt") if isinstance(fields, dict) else ""
    if own == "" or not isinstance(own, str | None):
        return body
    return json.dumps({**fields, "cache_salt": _extended(own, salt)}).encode()


def _extended(own: str | None, salt: str) -> str:
    if own is not None and len(own) > SALT_CHARACTERS_MAX:
        own = hashlib.blake2b(own.encode(errors="surrogatepass"), digest_size=16).hexdigest()
    return salt if own is None else f"{own}.{salt}"
