"""Labels responses with the weights that produced them, and separates versions in the prefix cache: an ASGI middleware,
added by our plugin.

Every answer of an endpoint that generates carries `X-Apollod-Weights-Version: 12`, or `12-14` if steps 13 and 14 were
completed while it was generated (hogwild: one more may have been under way). The headers of a stream leave before its
first token, so they have the first version only; the whole span comes as an SSE comment after the stream's last event,
where every client has either stopped reading or skips comments. Nothing is buffered on the way out.

Unless `[trainer] cache` is "keep", a request's `cache_salt` (vLLM hashes it into the first block of a prefix) gets a
suffix that no other announcement of weights had. For that the body is read as a whole, which vLLM would do next;
version and salt are those of the moment when it is complete.
"""

import hashlib
import json
import re

import msgspec

from apollod.engine.http.request_body import App, Message, Receive, Scope, Send, route_of, with_body

HEADER = b"x-apollod-weights-version"
COMMENT = ": apollod-weights-version {}\n\n"
SALT_CHARACTERS_MAX = 100  # of the client's own; vLLM 0.32 allows 128 in all (entrypoints/generate/base/protocol.py)
GENERATES = re.compile(
    r"/v1/(completions|chat/completions|chat/completions/batch|responses|messages|systemone)"
    r"|/inference/v1/generate|/generative_scoring|/invocations|/generate|/score"
)
"""Endpoints whose body has `cache_salt` (vllm/entrypoints/openai, anthropic, scale_out, generate, and serve/sagemaker,
which takes any of their bodies; 0.32), and ours."""


NAMES_MAX = 4096


class Names:
    """Outside trainers' names of versions of the weights. `coming`: that of the version which an update under way will
    bring; it is announced before the update's answer comes."""

    def __init__(self) -> None:
        self.coming = ""
        self._given: dict[int, str] = {}

    def give(self, version: int, name: str) -> None:
        """Name a version; an empty name leaves it as it is."""
        if name:
            self._given[version] = name
        if len(self._given) > NAMES_MAX:
            del self._given[next(iter(self._given))]

    def given(self, version: int) -> str:
        """The trainer's name of a version; empty if it has none."""
        return self._given.get(version, "")

    def of(self, version: int) -> str:
        """The trainer's name of a version, else its number."""
        return self.given(version) or str(version)

    def of_answer(self, first: int, last: int) -> str:
        """Name for an answer that one version began and another ended: the trainer's name of the last, else numbers as
        in the header."""
        return self.given(last) or spanning(first, last)


def spanning(first: int, last: int) -> str:
    """`first`, or `first-last`."""
    return f"{first}" if first == last else f"{first}-{last}"


class Served:
    """The last announcement to the engine; used on the server's loop only. `salt` is empty until prefixes of older
    weights must be hidden, `active` counts running generations."""

    def __init__(self) -> None:
        self.version: int | None = None
        self.names = Names()
        self.salt = ""
        self.active = 0
        self._turns = 0

    def announce(self, version: int, salted: bool) -> None:
        """Set the version of the weights; `salted`: new requests must not find earlier prefixes."""
        if version > (self.version or 0):
            self.names.give(version, self.names.coming)
        self.version = version
        if salted:
            self.turn()

    def turn(self) -> None:
        """Set a salt that was never used before.

        A version alone would not do. After a rollback it comes again, and requests that began under it may have run on,
        or been overtaken by the next step's writes: their prefixes are of weights that were undone.
        """
        self._turns += 1
        self.salt = f"w{self.version}.{self._turns}"

    def span(self, first: int) -> str:
        """`first`, or `first-last` if the version has changed since."""
        return spanning(first, first if self.version is None else self.version)


class VersionLabels:
    """The middleware. Requests before the first known version pass unchanged."""

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
            # use the salt at the time when the body is complete
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
    """The JSON object `body` with `cache_salt`: `salt`, after the client's own if it has one. All other values keep
    their bytes. Any other body is returned unchanged, for vLLM to report its error."""
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
    """The same for bodies that only Python's own `json` reads, like vLLM: UTF-16 and UTF-32, NaN, half a surrogate
    pair."""
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
