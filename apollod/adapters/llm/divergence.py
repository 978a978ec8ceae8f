"""Measures how probable an answer is with and without the text that was stripped from its conversation.

The engine's own template and tokenizer make the text (`/tokenize`), so that it is the served one. The answer consists
of the tokens after the common beginning of two renderings: the conversation up to the model's turn, and the
conversation with the answer; it has to be the same tokens with and without the stripped text. It ends with the last
token that is not white space.
"""

import time
from collections.abc import Awaitable, Sequence
from typing import NamedTuple, TypeVar

import anyio

from apollod.adapters.llm.answer import BLANK, Tokenised
from apollod.adapters.llm.client import Llm
from apollod.adapters.llm.request import Sampling
from apollod.core.settings import Thinking
from apollod.curation.contexts import Asked, Contexts
from apollod.errors import ScoreRefused

TOKENS_MAX = 8192
"""tokens of a conversation: vLLM keeps the log-probabilities of a prompt in memory that it did not plan for"""
REST_MAX_S = 60.0
"""longest rest, after a request that took long because the engine was held up"""
BEGINNING_MAX = 16
"""largest number of tokens by which the beginning of an answer may differ from the generation prompt (opened
thoughts)"""
ALTERNATE_TOKENS = 256

T = TypeVar("T")


class Pace:
    """Sends requests to the engine one after another, for at most a `share` of the time (0 to 1)."""

    def __init__(self, share: float) -> None:
        self._rest = 1.0 / share - 1.0

    async def __call__(self, question: Awaitable[T]) -> T:
        """Return the answer after a rest in proportion to its duration: a busy engine is asked less often."""
        began = time.monotonic()
        answer = await question
        await anyio.sleep(min(REST_MAX_S, (time.monotonic() - began) * self._rest))
        return answer


class Score(NamedTuple):
    """Mean log-probability (natural, per token) of an answer of `tokens` tokens."""

    with_context: float
    without_context: float
    tokens: int
    weights_version: int
    alternate: str


async def score(llm: Llm, both: Contexts, pace: Pace, priority: int | None = None, alternate: bool = False) -> Score:
    """Score an answer in both contexts. Raises an LlmError, ScoreRefused for an answer that cannot be compared."""
    told = []
    for asked in both:
        thinking: Thinking = "template" if asked.messages[-1].get("reasoning_content") else "off"
        prompt = await pace(llm.tokenise(asked.messages[:-1], asked.tools, thinking=thinking))
        whole = await pace(llm.tokenise(asked.messages, asked.tools, answer=False, thinking=thinking))
        told.append((whole.tokens, *answer_range(prompt, whole)))
    answers = {ids[start:end] for ids, start, end in told}
    if len(answers) != 1:
        raise ScoreRefused("the chat template writes the answer otherwise where less was said before it")
    means, version = [], -1
    for ids, start, end in told:
        scores = await pace(llm.score(ids[:end], priority=priority))
        means.append(sum(scores.logprobs[start - 1 :]) / (end - start))
        version = scores.versions.last if scores.versions is not None else -1
    text = await _alternate(llm, both.without_context, pace, priority) if alternate else ""
    return Score(means[0], means[1], len(answers.pop()), version, text)


def answer_range(prompt: Tokenised, whole: Tokenised) -> tuple[int, int]:
    """Return the index of the first token of the answer, and the index after its last. Raises ScoreRefused."""
    if len(whole.tokens) >= min(TOKENS_MAX, whole.max_model_len):
        raise ScoreRefused(f"the conversation has {len(whole.tokens)} tokens, which is too long to be scored")
    start = common(prompt.tokens, whole.tokens)
    end = len(whole.tokens)
    while end > start and not whole.token_strs[end - 1].strip(BLANK):
        end -= 1
    if start < max(1, len(prompt.tokens) - BEGINNING_MAX):
        raise ScoreRefused("the chat template writes what was said before an answer otherwise once it is there")
    if end <= start:
        raise ScoreRefused("the chat template writes nothing of the answer")
    return start, end


def common(one: Sequence[int] | str, other: Sequence[int] | str) -> int:
    """Length of the common beginning of two texts, or of their tokens."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


async def _alternate(llm: Llm, asked: Asked, pace: Pace, priority: int | None) -> str:
    """The most likely answer without the stripped text."""
    extra = {"tools": asked.tools, "tool_choice": "none"} if asked.tools else {}
    sampling = Sampling(max_tokens=ALTERNATE_TOKENS, temperature=0.0, priority=priority, thinking="off", extra=extra)
    return (await pace(llm.complete(asked.messages[:-1], sampling))).choices[0].text
