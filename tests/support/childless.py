"""A daemon without children: its own journal, loop and handlers, in this process; `ctl` reaches it without a socket."""

from pathlib import Path

import anyio
import pytest
from support.running_loop import running_loop

from apollod.cli.control import ctl
from apollod.errors import refusal
from apollod.supervisor.bootstrapping import Bootstrapper
from apollod.supervisor.config import Config
from apollod.supervisor.control import HANDLERS
from apollod.supervisor.requests.asked import Daemon
from apollod.supervisor.sections import ModelSection
from apollod.wire import messages as msg


def answered(config: Config, request: object) -> dict:
    """What the daemon answers, with its own journal, loop and handler; without children."""

    async def run() -> msg.Answer:
        async with running_loop(config.journal_path) as (loop, _):
            daemon = Daemon(config, loop, loop.journal, None, None, None, Bootstrapper(config, loop))
            return await HANDLERS[type(request)](daemon, request)

    reply = anyio.run(run)
    if isinstance(reply, msg.Failure):
        raise refusal(reply.code, reply.error, reply.hint)
    return dict(reply.body)


def reached(root: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Of a daemon whose state directory is `root`; `ctl` asks it whatever socket or configuration it is given."""
    made = Config(model=ModelSection(path=str(root / "m")))
    monkeypatch.setattr(Config, "state_dir", property(lambda self: root))
    monkeypatch.setattr(ctl, "ask", lambda path, request, timeout_s=0.0: answered(made, request))
    (root / "quarantine").mkdir()
    return made
