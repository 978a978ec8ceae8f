"""Compares trainer and engine: the same tokens scored by both, then tensors compared by digest."""

import json
import time
from collections.abc import Mapping
from pathlib import Path

import anyio
import msgspec
from msgspec.structs import replace

from apollod.adapters.llm.client import HttpLlm
from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.core.facts.alignment import TOKENS, ModelKind
from apollod.errors import ApolloError
from apollod.model.config_facts import kind_of
from apollod.model.engine_memory import asked_length
from apollod.supervisor.executor.context import SCORE_S, Background, Context, Handler, Inline, own_endpoint
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


async def _compare_weights(context: Context, effect: fx.CompareWeights) -> None:
    context.children.order_engine(effect)


HANDLERS: Mapping[type, Handler] = {
    fx.ProbeTrainer: Inline(_probe_trainer),
    fx.ScoreProbe: Background(_score),
    fx.DropScore: Inline(_drop_score),
    fx.CompareWeights: Inline(_compare_weights),
}
