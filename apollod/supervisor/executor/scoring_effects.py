"""Answers scored by the engine, with and without what was stripped from their conversations."""

import time
from collections.abc import Mapping
from itertools import pairwise

from apollod.adapters.llm.client import HttpLlm
from apollod.adapters.llm.divergence import Pace, score
from apollod.adapters.llm.endpoint import Endpoint
from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.curation.contexts import contexts
from apollod.errors import ApolloError, LlmError
from apollod.supervisor.config import Config
from apollod.supervisor.executor.context import Background, Context, Handler

SCORE_S = 60.0
LATER = 1
"""vLLM's priority of whoever can wait; users' requests have 0"""


async def _score(context: Context, effect: fx.ScoreExample) -> inp.ExampleScoreDone:
    """One example, within the share of time that the configuration allows."""
    review, began, id_ = context.config.review, time.monotonic(), effect.example
    try:
        accepted = (await context.journal.accepted_of([id_])).get(id_)
        both = contexts(bytes(accepted.record), accepted.removed) if accepted is not None else None
        if both is None:
            return inp.ExampleScoreDone(id_, error="it is no conversation")
        async with HttpLlm(_endpoint(context.config)) as llm:
            found = await score(llm, both, Pace(review.divergence_share), _priority(context.config), review.alternate)
    except LlmError as failure:
        return inp.ExampleScoreDone(id_, error=failure.line(), retryable=failure.retryable)
    except ApolloError as failure:
        return inp.ExampleScoreDone(id_, error=failure.line())
    seconds = time.monotonic() - began
    return inp.ExampleScoreDone(
        id_, found.with_context, found.without_context, found.tokens, found.weights_version, seconds, found.alternate
    )


def _endpoint(config: Config) -> Endpoint:
    """Our engine, asked once: whoever asks again is the core."""
    return Endpoint(
        config.api_url, config.engine.served_name, config.engine.api_key, attempts=1, try_s=SCORE_S, total_s=SCORE_S
    )


def _priority(config: Config) -> int | None:
    """After users' requests, where the engine is started so that it can tell."""
    args = config.engine.args
    chosen = ("--scheduling-policy", "priority") in pairwise(args) or "--scheduling-policy=priority" in args
    return LATER if chosen else None


HANDLERS: Mapping[type, Handler] = {fx.ScoreExample: Background(_score)}
