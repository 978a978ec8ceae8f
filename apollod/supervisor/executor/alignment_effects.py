"""Whether trainer and engine see the same weights: the same tokens scored by both, then tensors compared by digest."""

import time
from collections.abc import Mapping

import anyio
import msgspec

from apollod.adapters.llm.client import HttpLlm
from apollod.adapters.llm.endpoint import Endpoint
from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.errors import ApolloError
from apollod.supervisor.config import Config
from apollod.supervisor.executor.context import Background, Context, Handler, Inline
from apollod.wire import messages as msg
from apollod.wire.manifest import tensor_digest

SCORE_S = 60.0  # on a busy server the probe waits for its turn, and so does the next step


async def _probe_trainer(context: Context, effect: fx.ProbeTrainer) -> None:
    context.children.tell_trainer(msg.Probe(effect.step, effect.digests))


async def _score(context: Context, effect: fx.ScoreProbe) -> inp.Scored:
    """The engine's half, once it has taken over every version that it was told of."""
    engine, began = context.children.engine, time.monotonic()
    scored: tuple[float, ...] = ()
    error = "the engine is gone"
    if engine is not None:
        try:
            with anyio.fail_after(SCORE_S):
                await engine.api.settled()
                async with HttpLlm(_endpoint(context.config)) as llm:
                    scored = (await llm.score(effect.ids)).logprobs
            error = ""
        except TimeoutError:
            error = f"the engine did not score {len(effect.ids)} tokens within {SCORE_S:g} s"
        except ApolloError as failure:
            error = failure.line()
    probe = tensor_digest(msgspec.json.encode(effect.ids))
    return inp.Scored(effect.step, probe, effect.trainer, scored, effect.seconds + time.monotonic() - began, error)


def _endpoint(config: Config) -> Endpoint:
    """Our engine as a model to ask, once: whoever asks again is the core."""
    engine = config.engine
    host = f"[{engine.host}]" if ":" in engine.host else engine.host
    url = f"http://{host}:{engine.port}/v1"
    return Endpoint(url, engine.served_name, engine.api_key, attempts=1, try_s=SCORE_S, total_s=SCORE_S)


async def _compare_weights(context: Context, effect: fx.CompareWeights) -> None:
    context.children.order_engine(msg.Compare(effect.step, effect.digests))


HANDLERS: Mapping[type, Handler] = {
    fx.ProbeTrainer: Inline(_probe_trainer),
    fx.ScoreProbe: Background(_score),
    fx.CompareWeights: Inline(_compare_weights),
}
