"""The tasks that read sources with the real loop and journal, and nothing else of a daemon."""

import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
from support.other_user import NOBODY
from support.running_loop import running_loop

from apollod.adapters.journal import journal_reader
from apollod.core import events as ev
from apollod.core.state import State
from apollod.supervisor import sources
from apollod.supervisor.config import Config
from apollod.supervisor.sections import ModelSection, StateSection, WatchSection

WAIT_S = 20


def config_of(root: Path, *sections: WatchSection) -> Config:
    """A configuration; its inbox and quarantine are made."""
    config = Config(
        model=ModelSection(path=str(root / "m")), state=StateSection(dir=str(root / "state")), watch=sections,
    )  # fmt: skip
    config.inbox_dir.mkdir(parents=True, exist_ok=True)
    (config.state_dir / "quarantine").mkdir(exist_ok=True)
    return config


def live(config: Config, during: Callable[[State], Awaitable[None]]) -> State:
    """Read the sources, beginning with what the journal says, until `during` returns."""

    async def run() -> State:
        async with running_loop(config.journal_path) as (loop, tasks):
            sources.read_sources(config, loop, tasks)
            await during(loop.state)
        return loop.state

    return anyio.run(run)


async def until(true: Callable[[], bool]) -> None:
    with anyio.fail_after(WAIT_S):
        while not true():
            await anyio.sleep(0.02)


def events_of(config: Config) -> list[ev.Event]:
    return [item.event for item, _ in journal_reader.recorded(config.journal_path)]


@contextmanager
def unprivileged(place: Path) -> Iterator[None]:
    """As a user for whom modes count, to whom `place` belongs."""
    if os.geteuid() != 0:
        yield
        return
    os.chown(place, NOBODY, NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
