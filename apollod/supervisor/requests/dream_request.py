"""Requests to start and stop dreams."""

from apollod.adapters.system import clock
from apollod.core import inputs as inp
from apollod.core.dreams import status as dreams_status
from apollod.supervisor.requests.asked import Daemon
from apollod.supervisor.requests.pattern_request import unknown_pattern
from apollod.wire import messages as msg


async def start_dreams(daemon: Daemon, request: msg.DreamStartRequest) -> msg.Answer:
    """Start dreams; answered when it is recorded, with the first dream and the reason why it waits."""
    courses = daemon.loop.state.dreams.courses
    if not courses:
        return msg.Failure("there is no pattern to dream of", "`apollod ctl pattern add` adds one")
    wanted = [one for name, one in courses.items() if request.pattern in ("", name)]
    if not wanted:
        return unknown_pattern(request.pattern, list(courses))
    if not any(one.phase == "active" for one in wanted):
        which = f"{request.pattern} is {wanted[0].phase}" if request.pattern else "every pattern is settled or retired"
        hint = "`apollod ctl pattern add` has one practised"
        return msg.Failure(f"{which}, so there is nothing to practise", hint)
    await daemon.loop.submit(inp.DreamsWanted(request.by or "ctl", request.pattern, request.count))
    state = daemon.loop.state
    return msg.Reply(
        {
            "schema_version": 1,
            "pattern": request.pattern,
            "count": request.count,
            "next": dreams_status.upcoming(state),
            "reason": dreams_status.reason(state, clock.now_ns()),
        }
    )


async def stop_dreams(daemon: Daemon, request: msg.DreamStopRequest) -> msg.Answer:
    """Stop dreams; answered when it is recorded. The dream under way is kept, and goes on when dreaming is started
    again."""
    dreams = daemon.loop.state.dreams
    stopped_before = bool(dreams.stopped)
    await daemon.loop.submit(inp.DreamsUnwanted(request.by or "ctl"))
    dreams = daemon.loop.state.dreams
    return msg.Reply(
        {
            "schema_version": 1,
            "stopped": dreams.stopped,
            "before": stopped_before,
            "dream": dreams.open.id if dreams.open is not None else None,
        }
    )
