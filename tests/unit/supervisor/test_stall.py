"""A trainer that hangs is ended, one that is slow is not. The process is real; what it would say is put in its
place."""

from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from apollod.adapters.system.processes import ChildProcess
from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.supervisor.children import Children, OpenQuestions, TrainerChild
from apollod.supervisor.config import load_config
from apollod.supervisor.executor import Executor
from apollod.supervisor.executor.child_effects import watch_trainer
from apollod.wire import messages as msg

STEP = msg.Step(7, [], 1e-5)


async def watched(tmp_path: Path, stall_s: float, told: list[inp.Input], live: Any) -> None:
    """`live` with a process that says nothing, as the trainer, until it is over."""
    environ = {"APOLLOD_MODEL__PATH": str(tmp_path), "APOLLOD_TRAINER__STALL_S": str(stall_s)}
    process = await ChildProcess.spawn("http.server", ("0", "--bind", "127.0.0.1"), {}, tmp_path / "log")
    async with anyio.create_task_group() as tasks:
        children = Children(told.append)
        child = children.trainer = TrainerChild(process)
        executor = Executor(
            load_config(None, environ=environ), cast(Any, None), children, told.append, cast(Any, None), tasks
        )
        tasks.start_soon(watch_trainer, executor.context, child)
        try:
            with anyio.fail_after(120):
                await live(child, executor)
        finally:
            await process.stop(0.0)


def test_a_silent_trainer_is_ended_and_its_end_says_why(tmp_path: Path) -> None:
    told: list[inp.Input] = []

    async def live(child: TrainerChild, executor: Executor) -> None:
        await executor.run(fx.Restore("", "", True, ""))
        child.questions.answer("restore")
        child.tell(STEP)
        child.tell(msg.Encode([]))
        while not told:
            await anyio.sleep(0.01)

    anyio.run(watched, tmp_path, 0.3, told, live)
    (exited,) = told
    assert isinstance(exited, inp.TrainerExited) and exited.code == -9
    assert (
        exited.reason == "killed by SIGKILL: no answer to 'step 7' for 0.3 s, the longest that [trainer] stall_s allows"
    )


@pytest.mark.parametrize("stall_s", [0.0, 1.0])
def test_one_that_owes_nothing_or_may_take_its_time_is_left_alone(tmp_path: Path, stall_s: float) -> None:
    told: list[inp.Input] = []

    async def live(child: TrainerChild, executor: Executor) -> None:
        child.tell(STEP)
        if stall_s:
            child.questions.answer("step")
        await anyio.sleep(1.5)
        assert not told

    anyio.run(watched, tmp_path, stall_s, told, live)


def test_whoever_answers_something_is_at_work_on_the_rest() -> None:
    """A checkpoint is written beside steps, for longer than any of them."""

    async def main() -> None:
        questions = OpenQuestions()
        questions.ask("write-checkpoint", "write-checkpoint")
        with anyio.move_on_after(3.0) as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(questions.overdue, 1.0)
                for _ in range(20):
                    questions.ask("step", "step 1")
                    await anyio.sleep(0.1)
                    questions.answer("step")
                tasks.cancel_scope.cancel()
        assert not scope.cancelled_caught
        with anyio.fail_after(120):
            assert await questions.overdue(0.1) == "write-checkpoint"

    anyio.run(main)
