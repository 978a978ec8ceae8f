"""The seam to models: what is asked of an `Llm`, whoever it is, and the one implementation over HTTP."""

import random
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol

from apollod.adapters.llm.answer import (
    Completion,
    Scores,
    Tokenised,
    read_completion,
    read_scores,
    read_text,
    read_tokenised,
)
from apollod.adapters.llm.connections import Connections
from apollod.adapters.llm.endpoint import Endpoint
from apollod.adapters.llm.request import (
    Prompt,
    Sampling,
    completion_request,
    detokenising_request,
    is_chat,
    scoring_request,
    tokenising_request,
)


class Llm(Protocol):
    """A model that can be asked. Every failure is an LlmError; `retryable` says whether asking later may help."""

    async def complete(self, prompt: Prompt, sampling: Sampling) -> Completion:
        """Answers to a prompt: exactly as many as were asked for, with everything that was asked for."""

    async def score(self, ids: Sequence[int], top: int = 0, priority: int | None = None) -> Scores:
        """How probable these tokens are, each after those before it, and the `top` most likely ones in its place."""

    async def tokenise(
        self, prompt: str | Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = (), answer: bool = True
    ) -> Tokenised:
        """A text as it stands, marks such as `<|im_end|>` being what they mean; or a conversation in the words of the
        model's chat template; `answer`: up to where the model answers."""

    async def text_of(self, ids: Sequence[int]) -> str:
        """The text of these tokens, with the marks in it."""


class HttpLlm:
    """An OpenAI-compatible endpoint, our engine or another: `async with HttpLlm(Endpoint(...)) as llm`.

    Many tasks may ask at once; `Endpoint.concurrency` of them are served. Cancelling a question closes its request.
    """

    def __init__(self, endpoint: Endpoint, jitter: Callable[[], float] = random.random) -> None:
        self._connections = Connections(endpoint, jitter)
        self._model = endpoint.model

    async def __aenter__(self) -> "HttpLlm":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self._connections.__aexit__(kind, error, where)

    async def complete(self, prompt: Prompt, sampling: Sampling) -> Completion:
        """See `Llm.complete`."""
        path, body = completion_request(self._model, prompt, sampling)
        answer = await self._connections.post(path, body)
        return read_completion(answer.body, answer.version, is_chat(prompt), sampling)

    async def score(self, ids: Sequence[int], top: int = 0, priority: int | None = None) -> Scores:
        """See `Llm.score`. Needs vLLM's `prompt_logprobs`."""
        path, body = scoring_request(self._model, ids, top, priority)
        answer = await self._connections.post(path, body)
        return read_scores(answer.body, answer.version, ids)

    async def tokenise(
        self, prompt: str | Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = (), answer: bool = True
    ) -> Tokenised:
        """See `Llm.tokenise`. Needs vLLM's `/tokenize`, which lies beside the API's root."""
        path, body = tokenising_request(self._model, prompt, tools, answer)
        return read_tokenised((await self._connections.post(path, body, beside=True)).body)

    async def text_of(self, ids: Sequence[int]) -> str:
        """See `Llm.text_of`. Needs vLLM's `/detokenize`, beside the other."""
        path, body = detokenising_request(self._model, ids)
        return read_text((await self._connections.post(path, body, beside=True)).body)
