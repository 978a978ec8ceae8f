"""Has the engine score answers, with and without the text stripped from their conversations, and asks it about users'
messages after answers."""

import time
from collections.abc import Mapping

from apollod.adapters.llm.client import HttpLlm
from apollod.adapters.llm.log_probabilities import Pace, score, yes_or_no
from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.core.facts.followups import Known
from apollod.curation.contexts import contexts
from apollod.curation.signals.follow_up_question import follow_up_question, question_about_record, shipped_cases
from apollod.errors import ApolloError, LlmError, RecordRefused
from apollod.supervisor.child_commands import serves_by_priority
from apollod.supervisor.executor.context import SHARE, Background, Context, Handler, own_endpoint

LATER = 1
"""vLLM's priority for requests that can wait; users' requests have 0"""

Answer = inp.FollowUpDone | inp.CasesDone


async def _score_example(context: Context, effect: fx.ScoreExample) -> inp.ExampleScoreDone:
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


async def _score_follow_up(context: Context, effect: fx.ScoreFollowUp) -> Answer:
    """Ask about one follow-up, or about all cases one by one, within the share of time that the configuration
    allows."""
    try:
        return await (_follow_up(context, effect.example) if effect.example else _cases(context))
    except ApolloError as failure:
        why, retryable = failure.line(), failure.retryable
    if effect.example:
        return inp.FollowUpDone(effect.example, error=why, retryable=retryable)
    return inp.CasesDone(error=why, retryable=retryable)


async def _follow_up(context: Context, example: str) -> inp.FollowUpDone:
    began, noted = time.monotonic(), await context.journal.followed(example)
    accepted = (await context.journal.accepted_of([example])).get(example)
    if accepted is None or noted is None:
        raise RecordRefused(f"the journal holds no follow-up of example {example}")
    question = question_about_record(bytes(accepted.record), noted.text)
    if question is None:
        raise RecordRefused(f"example {example} is no conversation")
    async with HttpLlm(own_endpoint(context.config)) as llm:
        odds, version = await yes_or_no(llm, question, Pace(SHARE), _priority(context))
    return inp.FollowUpDone(example, noted, odds, version, time.monotonic() - began)


async def _cases(context: Context) -> inp.CasesDone:
    began, told, version = time.monotonic(), list[Known](), -1
    pace, priority = Pace(SHARE), _priority(context)
    async with HttpLlm(own_endpoint(context.config)) as llm:
        for case in shipped_cases():
            question = follow_up_question(case.asked, case.answer, case.reply)
            odds, version = await yes_or_no(llm, question, pace, priority)
            told.append(Known(odds, case.rejects))
    return inp.CasesDone(tuple(told), version, time.monotonic() - began)


def _priority(context: Context) -> int | None:
    return LATER if serves_by_priority(context.config) else None


HANDLERS: Mapping[type, Handler] = {
    fx.ScoreExample: Background(_score_example),
    fx.ScoreFollowUp: Background(_score_follow_up),
}
"""Effect type -> its handler."""
