"""Captures the engine's answers token by token: `[capture]`, docs/decisions/0017.

`CapturingClient` stands between vLLM's HTTP handlers and vLLM's engine, so that it covers all endpoints and changes
nothing for HTTP clients. vLLM's servers use `EngineClient` (vllm/engine/protocol.py), whichever engine is behind it;
this one forwards everything to the real one and passes every finished answer on, to a thread that does everything that
takes time (`capture_keeper`). Chat completions, completions, messages and responses, streamed or not, all call
`generate`, and all name their answer after the request id that they pass.

`OwnIds` makes that an id of our own, an ASGI middleware that our plugin adds if answers are kept. vLLM names a response
after the header X-Request-Id or the field `request_id`, if a client sends one. Two clients may send the same, or one of
them the same twice, so that an id would name an answer that its client never saw. So every request gets an id of our
own in place of the client's, and only answers under that id are kept.
"""

import logging
import time
import uuid
from array import array
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any, NamedTuple

import msgspec

from apollod.engine.http.request_body import App, Receive, Scope, Send, route_of, with_body

logger = logging.getLogger("vllm.apollod")

ID_HEADER = b"x-request-id"  # vllm/entrypoints/serve/engine/serving.py, `_base_request_id`: it precedes the body's
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
        others = [(name, value) for name, value in scope["headers"] if name.lower() != ID_HEADER]
        scope = {**scope, "headers": [*others, (ID_HEADER, own.encode())]}
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


class Finished(NamedTuple):
    """An answer from the engine. `final`: see `Answer`."""

    response: str
    choice: int
    at_ns: int
    version: str
    finish: str
    final: int
    prompt_ids: "array[int]"
    answer_ids: "array[int]"


class CapturingClient:
    """Wraps `generate`; all other attributes are the client's own."""

    def __init__(
        self,
        client: Any,
        keep: Callable[[Finished], None],
        settle: Callable[[float], None] = lambda timeout_s: None,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._client = client
        self._keep = keep
        self._now_ns = now_ns
        self.settle_captures = settle
        """waits until all answers so far can be found, at most so many seconds; blocks"""
        self.captured_version: Callable[[], int | None] = lambda: None
        """version of the weights being served"""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def generate(self, prompt: Any, sampling_params: Any, request_id: str, *args: Any, **kwargs: Any) -> Any:
        """The outputs of the client's own `generate`. Source: vllm/engine/protocol.py, 0.26 to 0.32."""
        outputs = self._client.generate(prompt, sampling_params, request_id, *args, **kwargs)
        named = response_of(request_id, own_id.get())
        if named is None or getattr(sampling_params, "prompt_logprobs", None) is not None:  # a measurement
            return outputs
        response, prompt_number = named
        first = prompt_number * (getattr(sampling_params, "n", 1) or 1)
        return self._watched(outputs, _Taking(response, first, self.captured_version()))

    async def _watched(self, outputs: AsyncGenerator[Any, None], taking: "_Taking") -> AsyncGenerator[Any, None]:
        async with aclosing(outputs):  # a client that leaves ends the request
            async for output in outputs:
                try:
                    for finished in taking.see(output, self.captured_version, self._now_ns):
                        self._keep(finished)
                except Exception:  # capture never costs an answer
                    logger.warning("an answer could not be kept", exc_info=True)
                yield output


def response_of(request_id: str, own: str) -> tuple[str, int] | None:
    """The id of the response as its client sees it, and the number of the prompt in its request. None if the id does
    not belong to an answer, or is not made of `own`: a client may have chosen it."""
    if own and request_id in (f"chatcmpl-{own}", f"resp_{own}"):
        return request_id, 0
    response, completion = f"resp_{own}_", f"cmpl-{own}-"
    if own and request_id.startswith((response, completion)):
        number = request_id.removeprefix(response).removeprefix(completion)
        if number.isdecimal():  # one a turn (openai/responses/serving.py), one a prompt (openai/completion/serving.py)
            turn = request_id.startswith(response)
            return (f"resp_{own}", 0) if turn else (f"cmpl-{own}", int(number))
    return None


class _Taking:
    """The tokens of one request so far. An output holds all tokens of a choice, or only new ones."""

    def __init__(self, response: str, first: int, version: int | None) -> None:
        self._response = response
        self._first = first
        self._version = version
        self._prompt = array("I")
        self._answers: dict[int, array[int]] = {}

    def see(self, output: Any, version: Callable[[], int | None], now_ns: Callable[[], int]) -> list[Finished]:
        """The choices that this output finishes."""
        if not self._prompt and output.prompt_token_ids:
            self._prompt = array("I", output.prompt_token_ids)
        finished = []
        for one in output.outputs:
            ids = self._answers.setdefault(one.index, array("I"))
            ids.extend(one.token_ids)
            if ids and one.finish_reason not in (None, "abort", "error"):
                del self._answers[one.index]
                finished.append(self._finished(one, ids, version(), now_ns()))
        return finished

    def _finished(self, one: Any, ids: "array[int]", version: int | None, at_ns: int) -> Finished:
        ended = one.finish_reason == "stop" and not isinstance(one.stop_reason, str)
        span = "" if self._version is None else f"{self._version}"
        if span and version not in (None, self._version):
            span = f"{span}-{version}"
        return Finished(
            self._response, self._first + one.index, at_ns, span, one.finish_reason, ids[-1] if ended else -1,
            self._prompt, ids,
        )  # fmt: skip
