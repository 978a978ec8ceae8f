"""Passes requests on to the engines elsewhere: those of the OpenAI API and a few that only read. Routes that write
weights are not passed on."""

import itertools
import re
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence

import httpx2
import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from apollod.engine.gateway.receivers import Receiver
from apollod.engine.gateway.sending import Sending
from apollod.engine.http.exchange import Refusal, read_body

PASSED = re.compile(r"/v1/[a-z0-9_./-]+|/(de)?tokenize|/version|/ping|/inference/v1/generate")
ADAPTERS = re.compile(r"/v1/(un)?load_lora_adapter")
MODELS = "/v1/models"
DROPPED = frozenset(
    {"host", "content-length", "connection", "keep-alive", "transfer-encoding", "upgrade", "te", "trailer",
     "proxy-authorization", "proxy-authenticate", "authorization", "accept-encoding"}
)  # fmt: skip
"""headers of one connection (RFC 9110, 7.6.1), and our own key"""


class Proxy:
    """Handlers for FastAPI. `name`: the model's name here. `keys`: one of them is required for what is passed on."""

    def __init__(self, sending: Sending, name: str, keys: Sequence[str]) -> None:
        self._sending, self._name, self._keys = sending, name, keys
        self._turn = itertools.count()

    async def health(self, request: Request) -> Response:
        """200 as soon as one engine is up."""
        return Response(status_code=200 if any(one.reachable and one.model for one in self._receivers) else 503)

    async def metrics(self, request: Request) -> Response:
        """Our own counters, and those of the first engine that answers."""
        texts = [generate_latest()]
        for one in self._sending.of_now()[:1]:
            try:
                answer = await one.client.get("/metrics")
                texts += [answer.content] if answer.status_code == 200 else []
            except (httpx2.HTTPError, httpx2.StreamError):
                pass
        return Response(b"".join(texts), media_type=CONTENT_TYPE_LATEST)

    async def models(self, request: Request) -> Response:
        """The one model, by its name here."""
        if refused := self._refused(request):
            return refused
        return JSONResponse({"object": "list", "data": [{"id": self._name, "object": "model", "owned_by": "apollod"}]})

    async def passed(self, request: Request) -> Response:
        """The answer of an engine that has the announced weights, as it comes."""
        path = request.url.path
        if not PASSED.fullmatch(path) or ADAPTERS.fullmatch(path):
            return _error(404, f"no route {path}", "engines elsewhere are sent weights by apollod alone")
        if refused := self._refused(request):
            return refused
        try:
            body = await read_body(request, "send less at once")
        except Refusal as refusal:
            return _error(*refusal.args)
        ready = await self._sending.ready()
        first = next(self._turn)
        failure = "no engine has the present weights yet"
        for number in range(len(ready)):
            one = ready[(first + number) % len(ready)]
            try:
                return await self._ask(one, request, body)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:  # nothing was asked: another one may answer
                one.lost()
                failure = f"{one.url}: {error or type(error).__name__}"
            except (httpx2.HTTPError, httpx2.StreamError) as error:
                one.lost()
                return _error(502, f"{one.url}: {str(error) or type(error).__name__}", "see its log")
        return _error(503, failure, "see `apollod ctl status` and the engine's log")

    async def _ask(self, one: Receiver, request: Request, body: bytes) -> Response:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in DROPPED}
        url = httpx2.URL(request.url.path, query=request.url.query.encode())
        told = one.client.build_request(request.method, url, headers=headers, content=self._renamed(one, body))
        used = one.adapter
        one.running[used] += 1
        try:
            answer = await one.client.send(told, stream=True)
        except BaseException:
            _ended(one, used)
            raise
        kept = {
            name: value for name, value in answer.headers.items() if name.lower() not in DROPPED | {"content-encoding"}
        }
        content = _whole(answer, one, used)
        if used:
            content = replaced(content, msgspec.json.encode(used), msgspec.json.encode(self._name))
        return StreamingResponse(content, answer.status_code, kept, background=BackgroundTask(answer.aclose))

    def _renamed(self, one: Receiver, body: bytes) -> bytes:
        """The body with the engine's own name of the model, or of the adapter: then also where it names none, or the
        model without one. SGLang knows no salt: it flushes its cache, or has another adapter."""
        try:
            fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return body
        ours = {msgspec.json.encode(self._name)}
        if one.adapter:
            ours |= {msgspec.json.encode(one.model), b"null", b""}
        if bytes(fields.get("model", b"")) in ours:
            fields |= {key: msgspec.Raw(msgspec.json.encode(name)) for key, name in one.names.items()}
        if one.terms.dialect == "sglang":
            fields.pop("cache_salt", None)
        return msgspec.json.encode(fields)

    def _refused(self, request: Request) -> Response | None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        offered = token.encode() if scheme.lower() == "bearer" else b""
        if not self._keys or any([secrets.compare_digest(offered, key.encode()) for key in self._keys]):
            return None
        return JSONResponse({"error": "Unauthorized"}, 401)  # vLLM's words

    @property
    def _receivers(self) -> Sequence[Receiver]:
        return self._sending.receivers


async def _whole(answer: httpx2.Response, one: Receiver, used: str) -> AsyncIterator[bytes]:
    try:
        async for chunk in answer.aiter_raw():
            yield chunk
    finally:
        _ended(one, used)


def _ended(one: Receiver, used: str) -> None:
    one.running[used] -= 1
    if one.running[used] <= 0:
        del one.running[used]


async def replaced(chunks: AsyncIterator[bytes], old: bytes, new: bytes) -> AsyncIterator[bytes]:
    """The same bytes with `new` wherever `old` is, also across chunks; only what may begin `old` is held back. A JSON
    string stands nowhere in another one unescaped, so that only whole strings are replaced."""
    held = b""
    async for chunk in chunks:
        text = (held + chunk).replace(old, new)
        held = next((text[-n:] for n in range(min(len(old) - 1, len(text)), 0, -1) if old.startswith(text[-n:])), b"")
        if ready := text[: len(text) - len(held)]:
            yield ready
    if held:
        yield held


def _error(status: int, error: str, hint: str) -> Response:
    told: Mapping[str, str] = {"error": error, "hint": hint}
    return JSONResponse(told, status)
