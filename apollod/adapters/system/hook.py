"""Runs the user's command after a checkpoint or at an alarm, with the facts in its environment. The daemon does not
wait for it."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress

import anyio
from anyio.abc import Process

from apollod.explain import reason

TAIL_BYTES = 2000


async def run_hook(command: Sequence[str], environment: Mapping[str, str], timeout_s: float, told: bytes = b"") -> str:
    """Run the command; return the error, empty for exit code 0. `environment` is its whole environment. After
    `timeout_s`, or when cancelled, its process group is killed. `told`: its standard input, which it need not read."""
    try:
        process = await anyio.open_process(
            list(command), stdin=subprocess.PIPE if told else subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
            env=environment,
        )  # fmt: skip
    except (OSError, ValueError) as error:  # ValueError: it contains a NUL
        return f"{command[0]} cannot be started: {reason(error) if isinstance(error, OSError) else error}"
    said = b""
    try:
        with anyio.move_on_after(timeout_s) as scope:
            assert process.stdout is not None
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_tell, process, told)
                async for chunk in process.stdout:
                    said = (said + chunk)[-TAIL_BYTES:]
                await process.wait()
                tasks.cancel_scope.cancel()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with anyio.CancelScope(shield=True):
            await process.wait()
            await process.aclose()
    if scope.cancelled_caught:
        return f"{command[0]} took longer than {timeout_s:g} s and was killed"
    last = said.decode(errors="replace").strip().rpartition("\n")[2]
    code = process.returncode
    return "" if code == 0 else f"{command[0]} ended with {code}: {last}" if last else f"{command[0]} ended with {code}"


async def _tell(process: Process, told: bytes) -> None:
    if process.stdin is not None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            await process.stdin.send(told)
            await process.stdin.aclose()
