"""Has the engine score answers, with and without the text stripped from their conversations."""

import time
from collections.abc import Mapping

from apollod.adapters.llm.client import HttpLlm
from apollod.adapters.llm.log_probabilities import Pace, score
from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.curation.contexts import contexts
from apollod.errors import ApolloError, LlmError
from apollod.supervisor.child_commands import serves_by_priority
from apollod.supervisor.executor.context import Background, Context, Handler
from apollod.supervisor.executor.own_engine import SHARE, own_endpoint

LATER = 1
"""vLLM's priority for requests that can wait; users' requests have 0"""


async def _score(context: Context, effect: fx.ScoreExample) -> inp.ExampleScoreDone:
    """Score one example, within the share of time that scores may take."""
    review, began, id_, after = context.config.review, time.monotonic(), effect.example, effect.after
    try:
        accepted = (await context.journal.accepted_of([id_])).get(id_)
        both = contexts(bytes(accepted.record), accepted.removed) if accepted is not None else None
        if both is None:
            return inp.ExampleScoreDone(id_, error="it is no conversation", after=after)
        priority = LATER if serves_by_priority(context.config) else None
        async with HttpLlm(own_endpoint(context.config)) as llm:
            found = await score(llm, both, Pace(SHARE), priority, review.alternate)
    except LlmError as failure:
        return inp.ExampleScoreDone(id_, error=failure.line(), retryable=failure.retryable, after=after)
    except ApolloError as failure:
        return inp.ExampleScoreDone(id_, error=failure.line(), after=after)
    seconds = time.monotonic() - began
    return inp.ExampleScoreDone(
        id_, found.with_context, found.without_context, found.tokens, found.weights_version, seconds, found.alternate,
        after=after,
    )  # fmt: skip


HANDLERS: Mapping[type, Handler] = {fx.ScoreExample: Background(_score)}
