"""Replays for a search for culprits. Each is answered by one input, unless the search ends before."""

from collections.abc import Mapping

from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.explain import reason
from apollod.supervisor.executor.context import Background, Context, Handler, Inline
from apollod.wire.window_search import Window, Without


async def _replay(context: Context, effect: fx.ReplayWindow) -> inp.WindowReplayed | inp.WindowReplayFailed:
    config, incident, number = context.config, effect.incident, effect.number
    window = Window(
        str(config.journal_path), str(config.state_dir), effect.first, effect.last, effect.references, effect.items
    )
    try:
        found = await context.replays.ask(config, context.tasks, (incident, window), Without(number, effect.left_out))
    except OSError as error:
        return inp.WindowReplayFailed(incident, number, reason(error))
    if found.error:
        return inp.WindowReplayFailed(incident, number, found.error, found.for_good)
    return inp.WindowReplayed(incident, number, found.drops, found.steps, found.seconds, found.fingerprint)


async def _end(context: Context, effect: fx.EndSearch) -> None:
    context.under_way.cancel_group(fx.ReplayWindow.__name__)
    context.replays.end()


HANDLERS: Mapping[type, Handler] = {fx.ReplayWindow: Background(_replay), fx.EndSearch: Inline(_end)}
"""From an effect to the coroutine that carries it out."""
