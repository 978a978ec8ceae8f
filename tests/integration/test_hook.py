"""The user's command after a checkpoint: whatever it does, the answer is one line, and nothing of it is left running."""

import os
import time
from pathlib import Path

import anyio
import pytest

from apollod.adapters.hook import run_hook


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
    found = run("sh", "-c", f"sleep 60 & echo $! > {tmp_path}/pid; wait", timeout_s=0.5)
    assert "longer than 0.5 s" in found and time.monotonic() - began < 20
    assert gone(int((tmp_path / "pid").read_text()))


def test_what_it_left_in_the_background_is_ended_too(tmp_path: Path) -> None:
    assert run("sh", "-c", f"sleep 60 >/dev/null 2>&1 & echo $! > {tmp_path}/pid") == ""
    assert gone(int((tmp_path / "pid").read_text()))


def test_a_daemon_that_leaves_ends_it(tmp_path: Path) -> None:
    async def main() -> None:
        with anyio.move_on_after(0.5):
            await run_hook(["sh", "-c", f"echo $$ > {tmp_path}/pid; sleep 60"], {}, 60.0)

    anyio.run(main)
    assert gone(int((tmp_path / "pid").read_text()))
