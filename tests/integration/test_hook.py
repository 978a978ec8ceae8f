"""The user's command after a checkpoint: whatever it does, the answer is one line, and nothing of it is left
running."""

import json
import os
import time
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from apollod.adapters.system.processes import run_hook
from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.supervisor.config import load_config
from apollod.supervisor.executor import Executor


def run(*command: str, timeout_s: float = 20.0) -> str:
    return anyio.run(run_hook, command, {"APOLLOD_CHECKPOINT_STEP": "7"}, timeout_s)


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_it_sees_the_checkpoint_and_its_success_says_nothing(tmp_path: Path) -> None:
    assert run("sh", "-c", f'echo "$APOLLOD_CHECKPOINT_STEP" > {tmp_path}/step; echo done') == ""
    assert (tmp_path / "step").read_text() == "7\n"


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("sh", "-c", "echo first; echo 'no route to host' >&2; exit 23"), "sh ended with 23: no route to host"),
        (("false",), "false ended with 1"),
        (("sh", "-c", "kill -9 $$"), "sh ended with -9"),
        (("/nowhere/hook",), "/nowhere/hook cannot be started: No such file or directory"),
        (("sh", "-c", "head -c 100000 /dev/zero | tr '\\0' '\\377'; exit 2"), "sh ended with 2: "),
    ],
)
def test_a_failure_is_one_line(command: tuple[str, ...], told: str) -> None:
    found = run(*command)
    assert found.startswith(told) and "\n" not in found and len(found) < 2100


def test_after_its_time_it_is_killed_with_what_it_started(tmp_path: Path) -> None:
    began = time.monotonic()
    found = run("sh", "-c", f"sleep 60 & echo $! > {tmp_path}/pid; wait", timeout_s=2.0)
    assert "longer than 2 s" in found and time.monotonic() - began < 20
    assert gone(int((tmp_path / "pid").read_text()))


def test_what_it_left_in_the_background_is_ended_too(tmp_path: Path) -> None:
    assert run("sh", "-c", f"sleep 60 >/dev/null 2>&1 & echo $! > {tmp_path}/pid") == ""
    assert gone(int((tmp_path / "pid").read_text()))


def test_a_daemon_that_leaves_ends_it(tmp_path: Path) -> None:
    pid = tmp_path / "pid"

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                run_hook, ["sh", "-c", f"echo $$ > {pid}.part; mv {pid}.part {pid}; sleep 60"], os.environ, 60.0
            )
            while not pid.exists():
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()

    anyio.run(main)
    assert gone(int(pid.read_text()))


def test_it_is_not_run_again_for_a_checkpoint_while_its_end_is_still_to_be_taken_note_of(tmp_path: Path) -> None:
    """Between the end of the command and the event that says so, the state still asks for it."""
    effect, lines = fx.RunHook(7, "/c", "f"), tmp_path / "lines"
    hook = json.dumps(["sh", "-c", f"echo ran >> {lines}"])
    config = load_config(None, environ={"APOLLOD_MODEL__PATH": str(tmp_path), "APOLLOD_CHECKPOINT__HOOK": hook})

    async def main() -> None:
        told: list[inp.Input] = []
        noted, ended = anyio.Event(), anyio.Event()

        async def submit(input_: inp.Input) -> None:
            told.append(input_)
            ended.set()
            await noted.wait()

        async with anyio.create_task_group() as tasks:
            executor = Executor(config, cast(Any, None), cast(Any, None), told.append, submit, tasks)
            with anyio.fail_after(120):
                await executor.run(effect)
                await ended.wait()
                await executor.run(effect)  # an input that was waiting before its end is decided first
                await anyio.sleep(0.1)
                noted.set()
                await anyio.wait_all_tasks_blocked()
                await executor.run(effect)
        assert [type(one) for one in told] == [inp.HookCompleted] * 2

    anyio.run(main)
    assert lines.read_text() == "ran\nran\n"
