"""A daemon without children: its own journal, loop and handlers, in this process; `ctl` reaches it without a socket."""

from pathlib import Path

import anyio
import pytest
from support.no_effects import NoEffects

from apollod.adapters.journal import journal_reader
from apollod.adapters.journal.writer import Journal
from apollod.cli.control import ctl
from apollod.core import inputs as inp
from apollod.core.fold import fold
from apollod.core.state import State
from apollod.errors import refusal
from apollod.supervisor.config import Config, ModelSection
from apollod.supervisor.loop import Loop
from apollod.supervisor.requests.asked import Daemon
from apollod.supervisor.requests.handlers import HANDLERS
from apollod.wire import messages as msg


def answered(config: Config, request: object) -> dict:
    """What the daemon answers, with its own journal, loop and handler; without children."""

    async def run() -> msg.Answer:
        journal = await Journal.open(config.journal_path)
        try:
            state = State()
            for item, _ in journal_reader.recorded(config.journal_path):
                fold(state, item)
            executor, loop = NoEffects(), Loop(state, journal)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(loop.run, executor)
                answer = await HANDLERS[type(request)](Daemon(config, loop, journal, None, None, None), request)
                executor.exit.set()
                loop.post(inp.Tick())
        finally:
            await journal.close()
        return answer

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
