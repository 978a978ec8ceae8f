"""Requests to read existing logs once."""

import re

import anyio.to_thread

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.kernel.composing import composed
from apollod.core.settings import PatternSettings
from apollod.supervisor import bootstrapping
from apollod.supervisor.config import Config
from apollod.supervisor.requests.asked import USAGE, Daemon, reply
from apollod.supervisor.requests.status_requests import status_of
from apollod.wire import messages as msg


async def bootstrap(daemon: Daemon, request: msg.BootstrapRequest) -> msg.Answer:
    """Start a bootstrap; answered when it is recorded, while reading goes on in the background. A repeated request
    finds it under way."""
    config, state = daemon.config, daemon.loop.state
    course = state.dreams.courses.get(request.pattern)
    if request.pattern and course is None:
        known = ", ".join(state.dreams.courses) or "there is none yet"
        hint = f"`apollod ctl pattern list` shows those that there are: {known}"
        return msg.Failure(f"there is no pattern {request.pattern}", hint, code=USAGE)
    wanted = wanted_of(config, request, course.pattern if course is not None else None)
    try:
        bootstrapping.section_of(wanted)
    except (ValueError, re.error) as error:
        return msg.Failure(str(error), "see `apollod ctl bootstrap --help`", code=USAGE)
    if (refused := await anyio.to_thread.run_sync(bootstrapping.refused, config, wanted)) is not None:
        return msg.Failure(str(refused), refused.hint)
    current = state.bootstrap.current
    under_way = current is not None and current.under_way
    if current is not None and under_way and _same(current.request) != _same(wanted):
        return msg.Failure(
            f"{current.request.path} is being learned, and one is learned at a time",
            "wait for it, or `apollod ctl bootstrap --stop` first",
            retryable=True,
        )
    goes_on = not under_way and state.bootstrap.before(wanted) is not None
    await daemon.loop.submit(wanted)
    shared = await anyio.to_thread.run_sync(bootstrapping.overlapping, config, wanted)
    return reply(
        path=request.path, under_way=under_way, goes_on=goes_on, watched=shared, bootstrap=status_of(daemon).bootstrap
    )


def wanted_of(config: Config, request: msg.BootstrapRequest, pattern: PatternSettings | None) -> ev.BootstrapRequested:
    """The event for a request; `pattern`: the one it names."""
    return composed(
        ev.BootstrapRequested, request, models=tuple(request.models) or (config.engine.served_name,),
        strip_patterns=tuple(request.strip_patterns),
        instruction=pattern.instruction if pattern is not None else "",
        surroundings=config.dream.surroundings_of(pattern) if pattern is not None else (),
        check=pattern.check if pattern is not None else None,
    )  # fmt: skip


def _same(request: ev.BootstrapRequested) -> tuple[str, str]:
    return request.path, request.mark


async def stop_bootstrap(daemon: Daemon, request: msg.BootstrapStopRequest) -> msg.Answer:
    """Stop the bootstrap; answered when reading has stopped."""
    current = daemon.loop.state.bootstrap.current
    if current is None or not current.under_way:
        return msg.Failure("no bootstrap is under way", "`apollod ctl bootstrap --status` tells of the last one")
    await daemon.loop.submit(inp.BootstrapStopWanted(request.by))
    return reply(bootstrap=status_of(daemon).bootstrap)
