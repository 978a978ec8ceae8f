"""Probability that a model answers yes rather than no, from the log-probabilities of its first token; each question
costs one token."""

from collections.abc import Mapping, Sequence
from typing import Any

from apollod.adapters.llm.client import Llm
from apollod.adapters.llm.divergence import Pace
from apollod.adapters.llm.request import Sampling
from apollod.curation.signals.follow_up_question import LIKELIEST, log_odds


async def yes_or_no(
    llm: Llm, question: Sequence[Mapping[str, Any]], pace: Pace, priority: int | None = None
) -> tuple[float, int]:
    """Log-odds of yes, and the version of the weights that answered; -1: unknown. Raises an LlmError."""
    sampling = Sampling(max_tokens=1, temperature=0.0, logprobs=True, top=LIKELIEST, priority=priority, thinking="off")
    said = await pace(llm.complete(question, sampling))
    likeliest = said.choices[0].likeliest
    return log_odds(likeliest[0]), said.versions.last if said.versions is not None else -1
