"""`apollod run` in a process that was forked with torch imported, and whose trainers are forked from it; with vLLM
imported, too, its engine is (`forked_engine`).

The daemon is the real one, trainers and engine are its real children (own session, die with it, their own log): what is
left out is `exec`, and with it the five seconds in which a trainer imports torch and transformers, and the twenty of an
engine. The stub and the receiver of weights are forked, too. The daemon of the fixture `running` uses none of this, so
that both ways are taken.
"""

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from anyio.abc import UNIXSocketStream
from support import forked_engine
from support.fork_server import become

FORKED = ("apollod.trainer", "apollod.testing.stub_engine", "apollod.engine.gateway", "apollod.receiver")
BACKOFF = "APOLLOD_TEST_BACKOFF_S"
"""environment variable of a daemon: the seconds after which what has died once is started again, instead of 1"""
NULL = -1
"""instead of a descriptor: of the empty file"""


class ForkedProcess:
    """What `ChildProcess` asks of a process, for one that was forked here."""

    def __init__(self, pid: int, stdin: UNIXSocketStream | None = None, stdout: UNIXSocketStream | None = None) -> None:
        """`stdin` and `stdout`: of one that talks; else its output is in its log."""
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
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
    """`apollod ARGUMENTS...`, with trainers that are forked, and engines where this process has imported vLLM."""
    from apollod.adapters.system import processes
    from apollod.cli.main import main
    from apollod.core import schedules

    schedules.BACKOFF_FIRST_S = float(os.environ.get(BACKOFF, schedules.BACKOFF_FIRST_S))

    started = processes.ChildProcess.spawn

    async def spawn(module: str, args: Sequence[str], env: Mapping[str, str], log: Path, talks: bool = False) -> Any:
        if module in FORKED:
            command = ["-m", module, *args]
        elif module == forked_engine.MODULE and "vllm" in sys.modules:
            command = forked_engine.command(*args)
        else:
            return await started(module, args, env, log, talks)
        streams: list[UNIXSocketStream] = []
        with ExitStack() as stack:
            out = stack.enter_context(processes._open_log(log)).fileno()
            given = NULL, out, out
            if talks:
                pairs = [socket.socketpair() for _ in ("stdin", "stdout")]
                given = *(stack.enter_context(theirs).fileno() for _, theirs in pairs), out
                streams = [await UNIXSocketStream.from_socket(ours) for ours, _ in pairs]
            return processes.ChildProcess(ForkedProcess(_fork(command, env, given), *streams), log)  # type: ignore[arg-type]

    processes.ChildProcess.spawn = spawn  # type: ignore[method-assign,assignment]
    return main(arguments)


def _fork(arguments: list[str], env: Mapping[str, str], streams: Sequence[int]) -> int:
    """A child that is `python ARGUMENTS...` with these standard streams, as `ChildProcess.spawn` starts it; its pid."""
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
    for target, descriptor in enumerate(streams):
        os.dup2(os.open(os.devnull, os.O_RDONLY) if descriptor == NULL else descriptor, target)
    os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)
    become(arguments, environment, [])
    raise AssertionError("not reached")
