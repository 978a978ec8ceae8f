"""A search for culprits: replays, each with one input as its answer, unless the search ends before; and if replays
cannot be run, a ranking by the trainer."""

from collections.abc import Mapping, Sequence

import anyio
import anyio.to_thread

from apollod.adapters.journal import blobs
from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.curation.probes.references import watched_items
from apollod.curation.redaction import redact_text
from apollod.errors import RecordRefused
from apollod.supervisor.executor.context import Background, Context, Handler, Inline
from apollod.supervisor.executor.failing import REASON_MAX, Failure, answered
from apollod.wire import messages as msg
from apollod.wire.window_search import Window, Without


async def _replay(context: Context, effect: fx.ReplayWindow) -> inp.WindowReplayed | inp.WindowReplayFailed:
    def failed(failure: Failure) -> inp.WindowReplayFailed:
        return inp.WindowReplayFailed(effect.incident, effect.number, failure.reason)

    work = _replayed(context, effect)
    return await answered(work, failed, "quality.replaying_broke", incident=effect.incident, number=effect.number)


async def _replayed(context: Context, effect: fx.ReplayWindow) -> inp.WindowReplayed | inp.WindowReplayFailed:
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
        msg.WatchedItem(references[id_].ids, len(references[id_].prompt), weight, rate)
        for (id_, rate), weight in watched.items()
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


HANDLERS: Mapping[type, Handler] = {
    fx.ReplayWindow: Background(_replay),
    fx.RankExamples: Inline(_rank),
    fx.EndSearch: Inline(_end),
}
"""Effect type -> its handler."""
