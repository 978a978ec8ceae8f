"""Runs of probes, and messages about alarms. Each is answered by one input, whatever happens on the way."""

from collections.abc import Mapping

import anyio.to_thread

from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.curation.redaction import redact_text
from apollod.errors import ApolloError
from apollod.explain import reason
from apollod.supervisor.executor.context import Background, Context, Handler
from apollod.supervisor.executor.failing import answered
from apollod.supervisor.quality import teller
from apollod.supervisor.quality.prober import Prober, probes_of


async def _measure(context: Context, effect: fx.MeasureQuality) -> inp.ProbesAnswered | inp.ProbesFailed:
    """Files are read anew for each run: who changes them is told that the baseline is of others."""
    try:
        probes = await anyio.to_thread.run_sync(probes_of, context.config)
        return await Prober(context.config, context.own).ask(effect.number, probes)
    except ApolloError as error:
        return inp.ProbesFailed(effect.number, error.line())
    except OSError as error:
        return inp.ProbesFailed(effect.number, reason(error))


async def _tell(context: Context, effect: fx.TellAlarm) -> inp.AlarmTold:
    work = teller.tell(context.config, effect.message)
    error = await answered(work, lambda failure: failure.reason, "quality.telling_broke", incident=effect.incident)
    return inp.AlarmTold(effect.incident, effect.about, redact_text(error))


HANDLERS: Mapping[type, Handler] = {
    fx.MeasureQuality: Background(_measure, limit=1),
    fx.TellAlarm: Background(_tell, limit=1),
}
"""From an effect to the coroutine that carries it out."""
