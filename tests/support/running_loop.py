"""The real loop on a journal, with nobody who runs effects."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import TaskGroup
from support.journals import opened
from support.no_effects import NoEffects

from apollod.adapters.journal import journal_reader
from apollod.core.fold import fold
from apollod.core.state import State
from apollod.supervisor.loop import LeaksOf, Loop


@asynccontextmanager
async def running_loop(journal_path: Path, leaks_of: LeaksOf | None = None) -> AsyncIterator[tuple[Loop, TaskGroup]]:
    """It begins with what the journal says; its tasks are cancelled at the end."""
    async with opened(journal_path) as journal:
        state = State()
        for item, _ in journal_reader.recorded(journal_path):
            fold(state, item)
        executor, loop = NoEffects(), Loop(state, journal, leaks_of=leaks_of)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(loop.run, executor)
            yield loop, tasks
            tasks.cancel_scope.cancel()
