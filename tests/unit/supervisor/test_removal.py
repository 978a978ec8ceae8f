"""Checkpoints are gone at once, and their bytes in the end, whenever the daemon ends."""

from pathlib import Path
from typing import Any, cast

import anyio

from apollod.core import effects as fx
from apollod.supervisor.executor import Executor


async def remove(directory: Path, *steps: int, end_at_once: bool = False) -> None:
    """A life of the daemon that removes these checkpoints one after the other."""
    none = cast(Any, None)
    async with anyio.create_task_group() as tasks:
        executor = Executor(none, none, none, none, none, tasks)
        for step in steps:
            await executor.run(fx.RemoveCheckpoint(str(directory / f"step-{step}")))
        if end_at_once:
            tasks.cancel_scope.cancel()


def checkpoints(directory: Path, count: int) -> Path:
    for step in range(1, count + 1):
        (directory / f"step-{step}").mkdir(parents=True)
        (directory / f"step-{step}" / "weights").write_bytes(b"w" * 100)
    return directory


def test_several_that_were_begun_are_removed_by_the_next_life(tmp_path: Path) -> None:
    place = checkpoints(tmp_path / "checkpoints", 5)
    anyio.run(lambda: remove(place, 1, 2, 3, end_at_once=True))
    assert sorted(path.name for path in place.iterdir() if path.name.startswith("step-")) == ["step-4", "step-5"]
    assert list(place.glob(".*/*/weights")), "it was to end before all of their bytes were gone"
    anyio.run(lambda: remove(place, 3))  # what recovery asks for at the start
    assert sorted(path.name for path in place.iterdir()) == ["step-4", "step-5"]


def test_a_path_may_be_used_again_at_once(tmp_path: Path) -> None:
    place = checkpoints(tmp_path / "checkpoints", 1)

    async def again() -> None:
        none = cast(Any, None)
        async with anyio.create_task_group() as tasks:
            executor = Executor(none, none, none, none, none, tasks)
            await executor.run(fx.RemoveCheckpoint(str(place / "step-1")))
            checkpoints(place, 1)

    anyio.run(again)
    assert [path.name for path in place.iterdir()] == ["step-1"] and (place / "step-1" / "weights").exists()


def test_one_that_is_gone_is_no_trouble(tmp_path: Path) -> None:
    anyio.run(lambda: remove(checkpoints(tmp_path / "checkpoints", 1), 7))
    anyio.run(lambda: remove(tmp_path / "nothing", 1))
    assert (tmp_path / "checkpoints" / "step-1").exists()
