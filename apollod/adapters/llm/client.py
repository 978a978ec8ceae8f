"""The interface to models, `Llm`, and its one implementation over HTTP; concurrent requests to one.

Connections to an endpoint are bounded, retried, timed, and closed when the caller stops waiting. A request that is
cancelled or runs out of time closes its connection, which makes vLLM abort it. Errors name the URL and never the key.
"""

import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

import anyio
import msgspec
import structlog

from apollod.adapters.llm import openai_api as api
from apollod.adapters.llm.endpoint import Endpoint
from apollod.adapters.llm.openai_api import Completion, Prompt, Sampling, Scores, Tokenised
from apollod.core.settings import Thinking
from apollod.errors import ApolloError, LlmError, LlmRefused, LlmTimedOut

if TYPE_CHECKING:
    from apollod.adapters.http_client import Transport

log = structlog.get_logger()

VERSION_HEADER = "x-apollod-weights-version"  # engine/http/versions.py
MESSAGE_CHARACTERS_MAX = 300
BACKOFF_FIRST_S = 0.5
BACKOFF_MOST_S = 30.0


class Answer(NamedTuple):
    """Body of an answer with status 200, and its version header (empty if missing)."""

    body: bytes
    version: str


class Connections:
    """Connections to one endpoint. `jitter` returns numbers in 0..1."""

    def __init__(self, endpoint: Endpoint, jitter: Callable[[], float] = random.random) -> None:
        self.endpoint = endpoint
        self._jitter = jitter
        self._slots = anyio.Semaphore(endpoint.concurrency)
        self._transport: Transport | None = None

    async def close(self) -> None:
        """Close all connections."""
        if self._transport is not None:
            with anyio.CancelScope(shield=True):
                await self._transport.close()
            self._transport = None

    async def get(self, path: str) -> bytes:
        """GET a path beside the base URL's last part; tried once. Return the body. Raises an LlmError."""
        return (await self._attempt(self.endpoint.url_of(path, beside=True))).body

    async def post(self, path: str, body: dict[str, Any], beside: bool = False) -> Answer:
        """POST to `path` below the base URL, or `beside` its last part. Raises an LlmError."""
        e, url, content = self.endpoint, self.endpoint.url_of(path, beside), msgspec.json.encode(body)
        failure: LlmError | None = None
        try:
            with anyio.fail_after(e.total_s) as scope:
                attempt = 1
                while True:
                    try:
                        return await self._attempt(url, content)
                    except LlmError as error:
                        failure = error
                    if not failure.retryable or attempt >= e.attempts:
                        raise failure
                    asked = failure.retry_after_s if isinstance(failure, LlmRefused) else None
                    wait_s = max(backoff_s(attempt, self._jitter()), asked or 0.0)
                    if anyio.current_time() + wait_s >= scope.deadline:
                        raise failure
                    log.info("llm.retry", url=e.base_url, attempt=attempt, wait_s=round(wait_s, 3), reason=str(failure))
                    await anyio.sleep(wait_s)
                    attempt += 1
        except TimeoutError as error:
            before = f"; before that: {failure}" if failure else ""
            raise LlmTimedOut(f"{e.base_url} gave no whole answer within {e.total_s:g} s{before}") from error

    async def _attempt(self, url: str, content: bytes | None = None) -> Answer:
        e = self.endpoint
        async with self._slots:
            try:
                with anyio.fail_after(e.try_s):
                    return await self._once(url, content)
            except TimeoutError as error:
                raise LlmTimedOut(f"{e.base_url} gave no whole answer within {e.try_s:g} s") from error

    async def _once(self, url: str, content: bytes | None) -> Answer:
        transport = self._transport = self._transport or await self._connect()
        status, headers, body = await transport.ask(url, content)
        if status == 200:
            return Answer(body, headers.get(VERSION_HEADER, ""))
        asked = retry_after_s(headers.get("retry-after", ""), time.time())
        raise LlmRefused(self.endpoint.base_url, status, self.endpoint.without_key(message_of(body)), asked)

    async def _connect(self) -> "Transport":
        """Import httpx2 in a thread: that takes a tenth of a second, in which the event loop goes on."""
        module = await anyio.to_thread.run_sync(import_module, "apollod.adapters.http_client")
        return self._transport or cast("Transport", module.Transport(self.endpoint))


def message_of(body: bytes) -> str:
    """Message of an error's body, in one line: in OpenAI's or FastAPI's format, else the beginning of the body."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        value = None
    for name in ("error", "message", "detail"):
        if isinstance(value, dict) and name in value:
            value = value[name]
    text = value if isinstance(value, str) and value else body.decode("utf-8", "replace")
    line = " ".join(text[: 4 * MESSAGE_CHARACTERS_MAX].split())
    return line[:MESSAGE_CHARACTERS_MAX] or "nothing"


def backoff_s(attempt: int, jitter: float) -> float:
    """Seconds to wait after failed attempt 1, 2, ...: doubling from BACKOFF_FIRST_S up to BACKOFF_MOST_S; `jitter` in
    0..1 takes off up to half, so that clients that failed together do not retry together."""
    return float(min(BACKOFF_MOST_S, BACKOFF_FIRST_S * 2 ** min(attempt - 1, 30)) * (1 - jitter / 2))


def retry_after_s(header: str, now_s: float) -> float | None:
    """Parse a Retry-After header: seconds, or a date (RFC 9110, 10.2.3); None if it is neither. `now_s`: since the
    epoch."""
    text = header.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    from email.utils import parsedate_to_datetime  # not at every start of the daemon

    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now_s)
    except (ValueError, TypeError, OverflowError):
        return None


T = TypeVar("T")


class Llm(Protocol):
    """A model that can be asked. Every failure is an LlmError; `retryable` says whether asking later may help."""

    async def complete(self, prompt: Prompt, sampling: Sampling) -> Completion:
        """Answer a prompt: exactly the requested number of choices, with all requested fields."""

    async def score(self, ids: Sequence[int], top: int = 0, priority: int | None = None) -> Scores:
        """Score tokens: the log-probability of each given those before it, and the `top` most likely ones at its
        position."""

    async def tokenise(
        self, prompt: str | Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = (), answer: bool = True,
        thinking: Thinking | None = None,
    ) -> Tokenised:  # fmt: skip
        """Tokenise a text as it stands, with special tokens such as `<|im_end|>` recognised; or a conversation,
        rendered by the model's chat template; `answer`: append the beginning of the model's answer."""

    async def text_of(self, ids: Sequence[int]) -> str:
        """Text of these tokens, special tokens included."""


class HttpLlm:
    """An OpenAI-compatible endpoint, our engine or another: `async with HttpLlm(Endpoint(...)) as llm`.

    Many tasks may ask at once; `Endpoint.concurrency` of them are served. Cancelling a call closes its request.
    """

    def __init__(self, endpoint: Endpoint, jitter: Callable[[], float] = random.random) -> None:
        self._connections = Connections(endpoint, jitter)
        self._model = endpoint.model
        self._opened: dict[Thinking, bool] = {}

    async def __aenter__(self) -> "HttpLlm":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._connections.close()

    async def complete(self, prompt: Prompt, sampling: Sampling) -> Completion:
        path, body = api.completion_request(self._model, prompt, sampling)
        chat = api.is_chat(prompt)
        # a grammar holds from the first token on, so an answer that follows a schema has no thought
        opened = chat and sampling.schema is None and await self._opens_thought(sampling.thinking)
        answer = await self._connections.post(path, body)
        return api.read_completion(answer.body, answer.version, chat, sampling, opened)

    async def _opens_thought(self, thinking: Thinking | None) -> bool:
        """True if the chat template's generation prompt ends within a thought. Asks only our own engine, once."""
        if thinking is None or thinking == "off":
            return False
        if thinking not in self._opened:
            prompt = await self.tokenise([{"role": "user", "content": "Hello."}], thinking=thinking)
            self._opened[thinking] = prompt.opens_thought
        return self._opened[thinking]

    async def score(self, ids: Sequence[int], top: int = 0, priority: int | None = None) -> Scores:
        """See `Llm.score`. Needs vLLM's `prompt_logprobs`."""
        path, body = api.scoring_request(self._model, ids, top, priority)
        answer = await self._connections.post(path, body)
        return api.read_scores(answer.body, answer.version, ids)

    async def tokenise(
        self, prompt: str | Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = (), answer: bool = True,
        thinking: Thinking | None = None,
    ) -> Tokenised:  # fmt: skip
        """See `Llm.tokenise`. Needs vLLM's `/tokenize`, which lies beside the API's root."""
        path, body = api.tokenising_request(self._model, prompt, tools, answer, thinking)
        return api.read_tokenised((await self._connections.post(path, body, beside=True)).body)

    async def text_of(self, ids: Sequence[int]) -> str:
        """See `Llm.text_of`. Needs vLLM's `/detokenize`, beside the API's root."""
        path, body = api.detokenising_request(self._model, ids)
        return api.read_text((await self._connections.post(path, body, beside=True)).body)


async def side_by_side(questions: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """Return the answers in the order of the questions; `Endpoint.concurrency` limits how many are asked at a time. A
    question that fails with an ApolloError or OSError cancels the others, and its error is raised, not in a group."""
    answers: dict[int, T] = {}
    failures: list[ApolloError | OSError] = []
    async with anyio.create_task_group() as tasks:

        async def ask(number: int, question: Callable[[], Awaitable[T]]) -> None:
            try:
                answers[number] = await question()
            except (ApolloError, OSError) as error:
                failures.append(error)
                tasks.cancel_scope.cancel()

        for number, question in enumerate(questions):
            tasks.start_soon(ask, number, question)
    if failures:
        raise failures[0]
    return [answers[number] for number in range(len(questions))]
