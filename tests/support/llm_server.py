"""A model endpoint over real HTTP that behaves as badly as it is told to: `async with LlmServer() as server`."""

import json
import math
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.abc import SocketStream

LOGPROB = math.log(0.5)


@dataclass
class Request:
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


Behaviour = Callable[["LlmServer", SocketStream, Request], Awaitable[None]]


@dataclass
class LlmServer:
    """Answers each request by the next of `script`, and as `otherwise` says, or well, when there is none left."""

    script: list[Behaviour] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    otherwise: "Behaviour | None" = None
    port: int = 0
    active: int = 0
    most_active: int = 0
    left: int = 0
    """requests whose client closed the connection before it had its answer"""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def serve(self, stream: SocketStream) -> None:
        async with stream:
            while (request := await _read(stream)) is not None:
                self.requests.append(request)
                self.active += 1
                self.most_active = max(self.most_active, self.active)
                try:
                    await (self.script.pop(0) if self.script else self.otherwise or well)(self, stream, request)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
                    self.left += 1
                    return
                finally:
                    self.active -= 1


@asynccontextmanager
async def serving(*script: Behaviour, port: int = 0) -> AsyncIterator[LlmServer]:
    """A server in this event loop; `port` 0: any that is free."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
    server = LlmServer(list(script))
    server.port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, server.serve)
        try:
            yield server
        finally:
            tasks.cancel_scope.cancel()


async def _read(stream: SocketStream) -> Request | None:
    data = b""
    try:
        while b"\r\n\r\n" not in data:
            data += await stream.receive()
        head, _, body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        while len(body) < int(headers.get("content-length", 0)):
            body += await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return None
    return Request(first.split(" ")[1], headers, json.loads(body or b"{}"))


async def send(stream: SocketStream, body: bytes, status: int = 200, **headers: str) -> None:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    await stream.send(f"HTTP/1.1 {status} Whatever\r\nContent-Length: {len(body)}\r\n{lines}\r\n".encode() + body)


# --- behaviours -------------------------------------------------------------------------------------------------------


def good_answer(request: Request) -> dict[str, Any]:
    """What vLLM answers to a completion, a chat or a question for scores."""
    asked = request.body
    chat = request.path.endswith("/chat/completions")
    ids = [7, 8, 9]
    choices = []
    for index in range(asked.get("n", 1)):
        choice: dict[str, Any] = {"index": index, "finish_reason": "stop"}
        if chat:
            choice["message"] = {"role": "assistant", "content": f"text {index}"}
            if asked.get("logprobs"):
                choice["logprobs"] = {"content": [{"token": "a", "logprob": LOGPROB}] * len(ids)}
        else:
            choice["text"] = f"text {index}"
            if asked.get("logprobs") is not None:
                choice["logprobs"] = {"tokens": ["a"] * len(ids), "token_logprobs": [LOGPROB] * len(ids)}
            if asked.get("prompt_logprobs") is not None:
                scored = [
                    {str(token): {"logprob": -float(token), "rank": 1, "decoded_token": "a"}}
                    for token in asked["prompt"][1:]
                ]
                choice["prompt_logprobs"] = [None, *scored]
        if asked.get("return_token_ids"):
            choice["token_ids"] = ids
            if not chat:
                choice["prompt_token_ids"] = [1, 2]
        choices.insert(0, choice)  # in any order
    answer = {
        "id": "cmpl-1",
        "model": asked["model"],
        "choices": choices,
        "usage": {"prompt_tokens": 2, "completion_tokens": 3},
    }
    return {**answer, "prompt_token_ids": [1, 2]} if chat and asked.get("return_token_ids") else answer


def conversation_tokens(asked: dict[str, Any]) -> dict[str, Any]:
    """What vLLM's `/tokenize` answers: a token for each role, word and end of a turn, and one for the new line behind
    it; tools come first."""
    said = [("tools", json.dumps(tool)) for tool in asked.get("tools", ())]
    said += [(message["role"], message["content"]) for message in asked["messages"]]
    texts = [text for role, content in said for text in (role, *content.split(), "<end>", "\u010a")]
    texts += ["assistant"] if asked["add_generation_prompt"] else []
    ids = [1 + zlib.crc32(text.encode()) % 997 for text in texts]
    return {"count": len(ids), "max_model_len": 4096, "tokens": ids, "token_strs": texts}


async def well(server: LlmServer, stream: SocketStream, request: Request) -> None:
    answer = conversation_tokens(request.body) if request.path == "/tokenize" else good_answer(request)
    await send(stream, json.dumps(answer).encode(), X_Apollod_Weights_Version="12-14")


def listing(context: int, otherwise: Behaviour = well) -> Behaviour:
    """Lists a model with this many positions; other requests go to `otherwise`."""

    async def behave(server: LlmServer, stream: SocketStream, request: Request) -> None:
        listed = {"data": [{"id": "m", "max_model_len": context}]}
        own = answers(listed, Content_Type="application/json")
        await (own if request.path == "/v1/models" else otherwise)(server, stream, request)

    return behave


def answers(body: bytes | dict[str, Any], status: int = 200, **headers: str) -> Behaviour:
    async def behave(server: LlmServer, stream: SocketStream, request: Request) -> None:
        await send(stream, body if isinstance(body, bytes) else json.dumps(body).encode(), status, **headers)

    return behave


def changed(change: Callable[[dict[str, Any]], object]) -> Behaviour:
    """A good answer after `change` was made to it."""

    async def behave(server: LlmServer, stream: SocketStream, request: Request) -> None:
        answer = good_answer(request)
        change(answer)
        await send(stream, json.dumps(answer).encode())

    return behave


async def slow_headers(server: LlmServer, stream: SocketStream, request: Request) -> None:
    """Nothing comes, until the client leaves."""
    await stream.receive()


async def slow_body(server: LlmServer, stream: SocketStream, request: Request) -> None:
    """A byte now and then."""
    await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        await stream.send(b" ")
        await anyio.sleep(0.02)


async def closes_mid_body(server: LlmServer, stream: SocketStream, request: Request) -> None:
    await stream.send(b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"choices": [')
    await stream.aclose()
    raise anyio.ClosedResourceError


async def closes_at_once(server: LlmServer, stream: SocketStream, request: Request) -> None:
    await stream.aclose()
    raise anyio.ClosedResourceError


async def never_ends(server: LlmServer, stream: SocketStream, request: Request) -> None:
    await stream.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        await stream.send(b"10000\r\n" + b" " * 0x10000 + b"\r\n")


async def not_http(server: LlmServer, stream: SocketStream, request: Request) -> None:
    await stream.send(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
    await stream.receive()
