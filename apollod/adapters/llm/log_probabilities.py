"""Asks the engine for log-probabilities: how probable an answer is with and without the text that was stripped from its
conversation, what a told model would say at each of its tokens (a teacher), and yes or no.

The engine's own template and tokenizer make the text (`/tokenize`), so that it is the served one. The answer consists
of the tokens after the common beginning of two renderings: the conversation up to the model's turn, and the
conversation with the answer. It ends with the last token that is not white space.
"""

import time
from array import array
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import anyio

from apollod.adapters.llm.client import Llm
from apollod.adapters.llm.openai_api import BLANK, Sampling, Scores, Tokenised
from apollod.core.settings import Thinking
from apollod.curation.signals import follow_up_question
from apollod.curation.stripping import Asked, Contexts, as_asked
from apollod.curation.surrounding_texts import answered
from apollod.errors import LlmNonsense, ScoreRefused
from apollod.wire.teacher import Teacher
from apollod.wire.thoughts import CLOSED, NO_THOUGHT, opens_thought, past_thought

TOKENS_MAX = 8192
"""tokens of a conversation: vLLM keeps the log-probabilities of a prompt in memory that it did not plan for"""
REST_MAX_S = 60.0
"""longest rest, after a request that took long because the engine was held up"""
BEGINNING_MAX = 16
"""largest number of tokens by which the beginning of an answer may differ from the generation prompt (opened
thoughts)"""
ALTERNATE_TOKENS = 256
LIKELIEST = 16  # at each position of a teacher; vLLM gives 20 at most unless it is started with --max-logprobs

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
    """Score an answer in both contexts, in which it has to be the same tokens. Raises an LlmError, ScoreRefused for an
    answer that cannot be compared."""
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


async def _alternate(llm: Llm, asked: Asked, pace: Pace, priority: int | None) -> str:
    """The most likely answer without the stripped text."""
    extra = {"tools": asked.tools, "tool_choice": "none"} if asked.tools else {}
    sampling = Sampling(max_tokens=ALTERNATE_TOKENS, temperature=0.0, priority=priority, thinking="off", extra=extra)
    return (await pace(llm.complete(asked.messages[:-1], sampling))).choices[0].text


async def teacher_of(
    llm: Llm, told: Sequence[Mapping[str, Any]], answer: str, k: int = LIKELIEST,
    tools: Sequence[Mapping[str, Any]] = (), priority: int | None = None, thought: str = "",
) -> Teacher:  # fmt: skip
    """Return the `k` likeliest tokens at each position of `answer`, which follows the messages `told` and `thought`, if
    any.

    The tokens of the answer have to be those that the trainer learns from the bare conversation (it compares them), so
    they follow its rules: the engine's own template and tokenizer make the text, no token spans the end of the prompt,
    an empty thought belongs to the prompt, and the last token is the one that ends the turn.
    Raises an LlmError; ScoreRefused if the answer cannot be located in the text of the chat template.
    """
    thinking: Thinking = "on" if thought else "off"
    prompt = await llm.tokenise(told, tools, thinking=thinking)
    said = as_asked(answered(answer, thought))
    whole = await llm.tokenise([*told, said], tools, answer=False, thinking=thinking)
    start, end = answer_range(prompt, whole)
    ids = whole.tokens[:end]
    tags = prompt.opens_thought or CLOSED in whole.token_strs[start : start + BEGINNING_MAX]
    if thought or tags or start < len(prompt.tokens):
        ids, start = await _apart(llm, prompt.tokens, ids, start, thought)
    scores = await llm.score(ids, k, priority)
    return teacher_from(scores, ids, start, k)


async def _apart(
    llm: Llm, prompt: tuple[int, ...], whole: tuple[int, ...], start: int, thought: str
) -> tuple[tuple[int, ...], int]:
    """Return token ids, and the index of the answer's first token. No token spans the end of the prompt (as `<think>`
    and a new line, of which the template makes two if the answer has no thought), and the thought is before the answer,
    not in it."""
    before, text = await llm.text_of(prompt), await llm.text_of(whole)
    at = common(before, text)
    head, rest = text[:at], text[at:]
    if opens_thought(before) and CLOSED not in rest:
        head, rest = before, thought + NO_THOUGHT + rest
    head, rest = past_thought(head, rest, thought)
    if head == text[:at] == await llm.text_of(whole[:start]):
        return whole, start
    first, last = await llm.tokenise(head), await llm.tokenise(rest)
    return first.tokens + last.tokens, len(first.tokens)


def teacher_from(scores: Scores, ids: Sequence[int], start: int, k: int) -> Teacher:
    """The `k` likeliest tokens at each position of `ids` from `start` on. Raises LlmNonsense where fewer came."""
    likeliest, logprobs = array("I"), array("f")
    for place in scores.top[start - 1 :]:
        if len(place) < k:
            raise LlmNonsense(f"the {k} likeliest tokens were asked for and {len(place)} came")
        for token, logprob in sorted(place.items(), key=lambda one: (-one[1], one[0]))[:k]:
            likeliest.append(token)
            logprobs.append(logprob)
    version = scores.versions.last if scores.versions is not None else -1
    return Teacher(array("I", ids[start:]), likeliest, logprobs, k, version)


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


async def yes_or_no(
    llm: Llm, question: Sequence[Mapping[str, Any]], pace: Pace, priority: int | None = None
) -> tuple[float, int]:
    """Log-odds that a model answers yes rather than no, from the log-probabilities of its first token (each question
    costs one token), and the version of the weights that answered; -1: unknown. Raises an LlmError."""
    sampling = Sampling(
        max_tokens=1, temperature=0.0, logprobs=True, top=follow_up_question.LIKELIEST, priority=priority,
        thinking="off",
    )  # fmt: skip
    said = await pace(llm.complete(question, sampling))
    likeliest = said.choices[0].likeliest
    return follow_up_question.log_odds(likeliest[0]), said.versions.last if said.versions is not None else -1
