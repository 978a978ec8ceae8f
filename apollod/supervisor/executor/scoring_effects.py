"""Log-probabilities of the engine: tokens that it and the trainer score, and then tensors compared by digest; answers
with and without the text stripped from their conversations; users' messages after answers."""

import json
import time
from collections.abc import Mapping
from pathlib import Path

import anyio
import msgspec
from msgspec.structs import replace

from apollod.adapters.llm.client import HttpLlm
from apollod.adapters.llm.log_probabilities import Pace, score, yes_or_no
from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.core.facts.alignment import TOKENS, ModelKind
from apollod.core.facts.followups import Known
from apollod.curation.signals.follow_up_question import follow_up_question, question_about_record, shipped_cases
from apollod.curation.stripping import contexts
from apollod.errors import ApolloError, LlmError, RecordRefused
from apollod.model.config_facts import kind_of
from apollod.model.engine_memory import asked_length
from apollod.supervisor.child_commands import priority_at
from apollod.supervisor.executor.context import (
    SCORE_S,
    SHARE,
    TO_ENGINE,
    Background,
    Context,
    Handler,
    Inline,
    own_endpoint,
)
from apollod.wire.manifest import tensor_digest


async def _probe_trainer(context: Context, effect: fx.ProbeTrainer) -> None:
    """Ask the trainer, with fewer tokens than the engine's limit: the engine has to be able to add one."""
    longest = asked_length(context.config.engine.args)
    tokens = effect.tokens if longest is None else min(effect.tokens or TOKENS, longest - 1)
    context.children.tell_trainer(replace(effect, tokens=tokens))


async def _score(context: Context, effect: fx.ScoreProbe) -> inp.Scored:
    """Ask for the engine's half, once it uses every version that it was told of."""
    engine, began, waiting = context.children.engine, time.monotonic(), anyio.CancelScope()
    scored: tuple[float, ...] = ()
    error = "the engine is gone"
    if engine is not None:
        context.tasks.start_soon(_say_late, context, effect, waiting)
        try:
            with anyio.fail_after(SCORE_S):
                await engine.api.settled()
                async with HttpLlm(own_endpoint(context.config)) as llm:
                    scored = (await llm.score(effect.ids)).logprobs
            error = ""
        except TimeoutError:
            error = f"the engine did not score {len(effect.ids)} tokens within {SCORE_S:g} s"
        except ApolloError as failure:
            error = failure.line()
        finally:
            waiting.cancel()
    probe = tensor_digest(msgspec.json.encode(effect.ids))
    seconds, kind = effect.seconds + time.monotonic() - began, _kind(Path(context.config.settings().model_path))
    return inp.Scored(effect.step, effect.number, probe, effect.trainer, scored, seconds, error, kind)


async def _say_late(context: Context, effect: fx.ScoreProbe, scope: anyio.CancelScope) -> None:
    """Tell the core that a step has waited long enough; the engine may still answer."""
    with scope:
        if effect.patience_s is not None:
            await anyio.sleep(effect.patience_s)
            context.post(inp.ScoreLate(effect.number))


def _kind(model_dir: Path) -> ModelKind:
    """Kind of the compared model; the stricter one if it cannot be read."""
    try:
        return kind_of(json.loads((model_dir / "config.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return "dense"


async def _drop_score(context: Context, effect: fx.DropScore) -> None:
    context.under_way.cancel(fx.ScoreProbe.key_of(number=effect.number))


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
        priority = priority_at(context.config, LATER)
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
        odds, version = await yes_or_no(llm, question, Pace(SHARE), priority_at(context.config, LATER))
    return inp.FollowUpDone(example, noted, odds, version, time.monotonic() - began)


async def _cases(context: Context) -> inp.CasesDone:
    began, told, version = time.monotonic(), list[Known](), -1
    pace, priority = Pace(SHARE), priority_at(context.config, LATER)
    async with HttpLlm(own_endpoint(context.config)) as llm:
        for case in shipped_cases():
            question = follow_up_question(case.asked, case.answer, case.reply)
            odds, version = await yes_or_no(llm, question, pace, priority)
            told.append(Known(odds, case.rejects))
    return inp.CasesDone(tuple(told), version, time.monotonic() - began)


HANDLERS: Mapping[type, Handler] = {
    fx.ProbeTrainer: Inline(_probe_trainer),
    fx.ScoreProbe: Background(_score),
    fx.DropScore: Inline(_drop_score),
    fx.CompareWeights: TO_ENGINE,
    fx.ScoreExample: Background(_score_example),
    fx.ScoreFollowUp: Background(_score_follow_up),
}
