"""`apollod run` in a process that was forked with torch imported, and whose trainers are forked from it.

The daemon is the real one, its trainers are its real children (own session, die with it, their own log): what is left
out is `exec`, and with it the five seconds in which a trainer imports torch and transformers. Engines are started as
ever. Tests with vLLM use none of this, so that both ways are taken.
"""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from support.fork_server import become

FORKED = "apollod.trainer"


class ForkedProcess:
    """What `ChildProcess` asks of a process, for one that was forked here."""

    stdin = stdout = None
    """its output is in its log"""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = asyncio.Event()
        self._pidfd = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._reap)

    async def wait(self) -> int:
        """Exit code, negative for a signal."""
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Raises ProcessLookupError."""
        signal.pidfd_send_signal(self._pidfd, number)

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self._pidfd)
        self._ended.set()


def run(*arguments: str) -> int:
    """`apollod ARGUMENTS...`, with trainers that are forked."""
    from apollod.adapters.system import processes
    from apollod.cli.main import main

    started = processes.ChildProcess.spawn

    async def spawn(module: str, args: Sequence[str], env: Mapping[str, str], log: Path, talks: bool = False) -> Any:
        if module != FORKED:
            return await started(module, args, env, log, talks)
        with processes._open_log(log) as out:
            return processes.ChildProcess(ForkedProcess(_fork(["-m", module, *args], env, out.fileno())), log)  # type: ignore[arg-type]

    processes.ChildProcess.spawn = spawn  # type: ignore[method-assign,assignment]
    return main(arguments)


def _fork(arguments: list[str], env: Mapping[str, str], log: int) -> int:
    """A child that is `python ARGUMENTS...` as `ChildProcess.spawn` starts it; its pid."""
    parent = os.getpid()
    environment = {**os.environ, **env, "APOLLOD_PARENT_PID": str(parent), "PYTHONUNBUFFERED": "1"}
    sys.stdout.flush()
    sys.stderr.flush()
    if (pid := os.fork()) != 0:
        return pid
    # the daemon's objects are not ours to finalise: their descriptors are closed below, and their numbers used again
    gc.freeze()
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDWR)
    for target, descriptor in enumerate((null, log, log)):
        os.dup2(descriptor, target)
    os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)
    for name in [name for name in sys.modules if name.partition(".")[0] == "apollod"]:
        del sys.modules[name]  # what they read from the environment at import was the daemon's
    become(arguments, environment, [])
    raise AssertionError("not reached")
