"""Runs of probes, and messages about alarms. Each has one input as its answer, also after failures."""

from collections.abc import Mapping

import anyio.to_thread
import msgspec

from apollod.adapters.journal import blobs
from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.curation.probes.probe_item import digest
from apollod.curation.probes.probe_kinds import contrast_probes
from apollod.curation.redaction import redact_text
from apollod.errors import ProbesBroken
from apollod.explain import reason
from apollod.supervisor.executor.context import Background, Context, Handler
from apollod.supervisor.executor.failing import Failure, answered
from apollod.supervisor.quality import teller
from apollod.supervisor.quality.leak_watch import left_out
from apollod.supervisor.quality.prober import Prober, probes_known


async def _measure(context: Context, effect: fx.MeasureQuality) -> inp.ProbesAnswered | inp.ProbesFailed:
    def failed(failure: Failure) -> inp.ProbesFailed:
        return inp.ProbesFailed(effect.number, failure.reason)

    return await answered(_measured(context, effect), failed, "quality.measuring_broke", number=effect.number)


async def _measured(context: Context, effect: fx.MeasureQuality) -> inp.ProbesAnswered | inp.ProbesFailed:
    """Measure. Files are read anew for each run, so that a change of the probes since the baseline is reported."""
    directory = context.config.state_dir / blobs.NAME
    try:
        own = contrast_probes(effect.contrasts)
        probes = await anyio.to_thread.run_sync(probes_known, context.config, effect.known, own)
        out = left_out(await context.leaks.leaks(probes)) if context.leaks else {}
        asked = tuple(probe for probe in probes if probe.id not in out and probe.group not in effect.without)
        if not asked:
            none = "examples hold all probes that the model passes; name a file of your own in [quality] probe"
            return inp.ProbesFailed(effect.number, none, "unable")
        prober = await anyio.to_thread.run_sync(Prober, context.config, context.judge)
        if effect.baseline:
            found, references = await prober.baseline(effect.number, asked, effect.tries)
            kept = await anyio.to_thread.run_sync(context.references.keep, directory, references)
            found = msgspec.structs.replace(found, references=kept, contrasts=effect.contrasts)
        else:
            known = await anyio.to_thread.run_sync(context.references.of, directory, effect.references)
            await anyio.to_thread.run_sync(context.references.tidy, directory, effect.references)
            found = await prober.look(effect.number, asked, effect.share, known, effect.lessons)
        # digest of the whole set, so that a look without some items still matches the baseline
        return msgspec.structs.replace(found, probes=digest(probes), left_out={**found.left_out, **out})
    except ProbesBroken as error:
        return inp.ProbesFailed(effect.number, redact_text(error.line()), "unable" if error.unable else "engine")
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return inp.ProbesFailed(effect.number, place + reason(error))


async def _tell(context: Context, effect: fx.TellAlarm) -> inp.AlarmTold:
    work = teller.tell(context.config, effect.message)
    error = await answered(work, lambda failure: failure.reason, "quality.telling_broke", incident=effect.incident)
    return inp.AlarmTold(effect.incident, effect.about, redact_text(error))


HANDLERS: Mapping[type, Handler] = {
    fx.MeasureQuality: Background(_measure, limit=1),
    fx.TellAlarm: Background(_tell, limit=1),
}
"""Effect type -> its handler."""
