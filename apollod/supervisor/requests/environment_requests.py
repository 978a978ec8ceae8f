"""Requests about environments."""

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.supervisor.requests.asked import Daemon, reply
from apollod.wire import control_messages as msg


async def environment(daemon: Daemon, request: msg.EnvironmentRequest) -> msg.Answer:
    """Pause or resume an environment; answered when it is recorded. `already`: nothing changes; `withdrawn`: groups
    that are not learned any more."""
    name, known = request.environment, daemon.loop.state.environments.named
    if name not in known:
        which = ", ".join(known) or "there is none"
        return msg.Failure(f"there is no environment {name[:40]}: {which}", "`apollod ctl environment list` has them")
    wanted: inp.Input
    if request.action == "pause":
        wanted = inp.EnvironmentPaused(name, request.by, request.reason)
    else:
        wanted = inp.EnvironmentResumed(name, request.by)
    waited = len(known[name].waiting)
    recorded = [one.event for one in await daemon.loop.submit(wanted)]
    done = any(isinstance(one, ev.EnvironmentPaused | ev.EnvironmentResumed) for one in recorded)
    return reply(environment=name, already=not done, withdrawn=waited if done and request.action == "pause" else 0)
