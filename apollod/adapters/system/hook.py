"""The user's command after a checkpoint. It sees the checkpoint in its environment and nobody waits for it."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress

import anyio

from apollod.explain import reason

TAIL_BYTES = 2000


async def run_hook(command: Sequence[str], environment: Mapping[str, str], timeout_s: float) -> str:
    """What went wrong, empty for exit code 0. After `timeout_s`, or when cancelled, the command's process group is
    killed."""
    try:
        process = await anyio.open_process(
            list(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **environment},
        )  # fmt: skip
    except OSError as error:
        return f"{command[0]} cannot be started: {reason(error)}"
    said = b""
    try:
        with anyio.move_on_after(timeout_s) as scope:
            assert process.stdout is not None
            async for chunk in process.stdout:
                said = (said + chunk)[-TAIL_BYTES:]
            await process.wait()
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
