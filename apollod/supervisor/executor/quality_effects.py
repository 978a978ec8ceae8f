"""Runs of probes. Each is answered by one input, whatever happens on the way."""

from collections.abc import Mapping

import anyio.to_thread
import msgspec

from apollod.adapters.journal import blobs
from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.errors import ApolloError
from apollod.explain import reason
from apollod.supervisor.executor.context import Background, Context, Handler
from apollod.supervisor.quality.prober import Prober, probes_of


async def _measure(context: Context, effect: fx.MeasureQuality) -> inp.ProbesAnswered | inp.ProbesFailed:
    """Files are read anew for each run: who changes them is told that the baseline is of others."""
    directory = context.config.state_dir / blobs.NAME
    try:
        probes = await anyio.to_thread.run_sync(probes_of, context.config)
        prober = Prober(context.config, context.own, context.judge)
        if not effect.baseline:
            known = await anyio.to_thread.run_sync(context.references.of, directory, effect.references)
            return await prober.look(effect.number, probes, effect.share, known)
        answered, found = await prober.baseline(effect.number, probes)
        kept = await anyio.to_thread.run_sync(context.references.keep, directory, found)
        return msgspec.structs.replace(answered, references=kept)
    except ApolloError as error:
        return inp.ProbesFailed(effect.number, error.line())
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return inp.ProbesFailed(effect.number, place + reason(error))


HANDLERS: Mapping[type, Handler] = {fx.MeasureQuality: Background(_measure, limit=1)}
"""From an effect to the coroutine that carries it out."""
