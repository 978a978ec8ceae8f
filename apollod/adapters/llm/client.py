"""The interface to models, `Llm`, and its one implementation over HTTP; concurrent requests to one."""

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import anyio

from apollod.adapters.llm import openai_api as api
from apollod.adapters.llm.connections import Connections
from apollod.adapters.llm.endpoint import Endpoint
from apollod.adapters.llm.openai_api import Completion, Prompt, Sampling, Scores, Tokenised
from apollod.core.settings import Thinking
from apollod.errors import ApolloError

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
