"""Bootstraps with the real files, loop and journal, and nothing else of a daemon."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
from support.running_loop import running_loop
from support.source_life import until

from apollod.core import events as ev
from apollod.core.facts.bootstrap import Bootstrapping
from apollod.core.state import State
from apollod.supervisor import sources
from apollod.supervisor.bootstrapping import Bootstrapper
from apollod.supervisor.config import Config
from apollod.supervisor.loop import Loop


def asked(path: Path, **rules: Any) -> ev.BootstrapRequested:
    return ev.BootstrapRequested(**{"path": str(path), "by": "t", "models": ("*",)} | rules)


def live(config: Config, during: Callable[[Loop], Awaitable[None]], watch: bool = False) -> State:
    """A daemon's loop with its reader of bootstraps until `during` returns, beginning with what the journal says."""

    async def run() -> State:
        async with running_loop(config.journal_path) as (loop, tasks):
            if watch:
                sources.read_sources(config, loop, tasks)
            tasks.start_soon(Bootstrapper(config, loop).run)
            await during(loop)
        return loop.state

    return anyio.run(run)


def current(state: State) -> Bootstrapping:
    assert state.bootstrap.current is not None
    return state.bootstrap.current


def bootstrap(config: Config, request: ev.BootstrapRequested | None, watch: bool = False) -> Bootstrapping:
    """Ask (or, without a request, go on with what is under way) and wait until all is read."""

    async def during(loop: Loop) -> None:
        if request is not None:
            await loop.submit(request)
        await until(lambda: current(loop.state).phase != "reading")

    return current(live(config, during, watch))
