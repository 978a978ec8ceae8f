"""Requests to pause and resume training."""

from apollod.core import inputs as inp
from apollod.supervisor.requests.asked import Daemon
from apollod.supervisor.requests.status_request import status_of
from apollod.wire import messages as msg


async def pause(daemon: Daemon, request: msg.PauseRequest) -> msg.Answer:
    """Pause; answered with the status when it is recorded. The running step goes on."""
    await daemon.loop.submit(inp.PauseRequested(by="ctl"))
    return msg.Reply(status_of(daemon))


async def resume(daemon: Daemon, request: msg.ResumeRequest) -> msg.Answer:
    """Resume; answered with the status when it is recorded."""
    await daemon.loop.submit(inp.ResumeRequested(by="ctl"))
    return msg.Reply(status_of(daemon))
