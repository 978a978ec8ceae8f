"""The quality guard: runs of probes, messages about alarms, and the search for culprits.

Each has one input as its answer, also after failures, unless a search ends before. If replays cannot be run, the
trainer ranks the examples.
"""

from collections.abc import Mapping, Sequence

import anyio
import anyio.to_thread
import msgspec

from apollod.adapters.journal import blobs
from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.curation.probes.probe_item import digest
from apollod.curation.probes.probe_kinds import contrast_probes
from apollod.curation.probes.references import watched_items
from apollod.curation.redaction import redact_text
from apollod.errors import ProbesBroken, RecordRefused
from apollod.explain import reason
from apollod.supervisor.executor.context import REASON_MAX, Context, Failure, Handler, Inline, asking
from apollod.supervisor.quality import teller
from apollod.supervisor.quality.leak_watch import left_out
from apollod.supervisor.quality.prober import Prober, probes_known
from apollod.wire import messages as msg
from apollod.wire.pipe_messages import Window, Without


async def _measure(context: Context, effect: fx.MeasureQuality) -> inp.ProbesAnswered | inp.ProbesFailed:
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
    error = await teller.tell(context.config, effect.message)
    return inp.AlarmTold(effect.incident, effect.about, redact_text(error))


async def _replay(context: Context, effect: fx.ReplayWindow) -> inp.WindowReplayed | inp.WindowReplayFailed:
    config, incident, number = context.config, effect.incident, effect.number
    window = Window(
        str(config.journal_path), str(config.state_dir), effect.first, effect.last, effect.references, effect.items
    )
    with anyio.move_on_after(effect.limit_s) as limit:  # a cancelled replay ends its process
        asked = Without(number, effect.left_out, effect.lr_scale)
        found = await context.replays.ask(config, context.tasks, (incident, window), asked)
    if limit.cancelled_caught:
        late = f"it had no result after {effect.limit_s:g} s and was ended ([quality] replay_s)"
        return inp.WindowReplayFailed(incident, number, late)
    if found.error:
        return inp.WindowReplayFailed(incident, number, redact_text(found.error)[:REASON_MAX], found.for_good)
    return inp.WindowReplayed(incident, number, found.drops, found.steps, found.seconds, found.fingerprint)


async def _rank(context: Context, effect: fx.RankExamples) -> Sequence[inp.Input] | None:
    directory = context.config.state_dir / blobs.NAME
    references = await anyio.to_thread.run_sync(context.references.of, directory, effect.references)
    try:
        watched = watched_items(references, effect.items, effect.weights)
    except RecordRefused as error:
        return [inp.ExamplesRanked(effect.incident, effect.number, error=error.line())]
    items = [
        msg.WatchedItem(*references[id_].scored(deciding), weight, rate)
        for ((id_, deciding), rate), weight in watched.items()
    ]
    records = await context.journal.records_of([one.example for one in effect.suspects])
    suspects = [
        msg.Suspect(msg.StepExample(one.example, records[one.example], one.digest), one.objective, one.lr)
        for one in effect.suspects
    ]
    context.children.tell_trainer(msg.Rank(effect.incident, effect.number, items, suspects))
    return None


async def _end(context: Context, effect: fx.EndSearch) -> None:
    context.under_way.cancel_group(fx.ReplayWindow.__name__)
    context.replays.end()


def _not_replayed(effect: fx.ReplayWindow, failure: Failure) -> inp.WindowReplayFailed:
    return inp.WindowReplayFailed(effect.incident, effect.number, failure.reason)


HANDLERS: Mapping[type, Handler] = {
    fx.MeasureQuality: asking(
        _measure, lambda e, failure: inp.ProbesFailed(e.number, failure.reason), "quality.measuring_broke", "number",
        limit=1,
    ),
    fx.TellAlarm: asking(
        _tell, lambda e, failure: inp.AlarmTold(e.incident, e.about, failure.reason), "quality.telling_broke",
        "incident", limit=1,
    ),
    fx.ReplayWindow: asking(_replay, _not_replayed, "quality.replaying_broke", "incident", "number"),
    fx.RankExamples: Inline(_rank),
    fx.EndSearch: Inline(_end),
}  # fmt: skip
