"""Asks a judge over HTTP for votes, and counts their cost."""

import time
from collections.abc import Callable

import msgspec

from apollod.adapters.llm.client import Llm, side_by_side
from apollod.adapters.llm.openai_api import Completion, Sampling
from apollod.core.facts.judging.votes import Vote
from apollod.core.inputs import Judged
from apollod.core.kernel.composing import composed
from apollod.core.settings import Thinking
from apollod.curation.judge_question import SCHEMA, Question, vote_of
from apollod.errors import VerdictNonsense


class Terms(msgspec.Struct, frozen=True):
    """Parameters of requests to a judge. `priority`: as vLLM takes it, larger is later; None: not sent."""

    votes: int
    temperature: float
    max_tokens: int = 2048
    """per answer"""
    priority: int | None = None
    thinking: Thinking | None = None


async def ask(llm: Llm, question: Question, terms: Terms, without_key: Callable[[str], str]) -> Judged:
    """Collect all votes concurrently, each by a request of its own, since not every endpoint gives several answers to
    one.

    `without_key`: removes the API key from an answer. Raises an LlmError, and VerdictNonsense as soon as one vote is
    invalid.
    """
    sampling = composed(Sampling, terms, schema=SCHEMA)
    began = time.monotonic()

    async def vote() -> tuple[Vote, Completion]:
        answer = await llm.complete(question.messages, sampling)
        said = answer.choices[0]
        if said.cut:
            raise VerdictNonsense(f"the answer was cut off after {terms.max_tokens} tokens")
        return vote_of(without_key(said.text), question), answer

    votes, answers = zip(*await side_by_side([vote] * terms.votes), strict=True)
    versions = [answer.versions.last for answer in answers if answer.versions is not None]
    return Judged(
        votes, max(versions, default=None), sum(answer.prompt_tokens for answer in answers),
        sum(answer.completion_tokens for answer in answers), round(time.monotonic() - began, 6),
    )  # fmt: skip
