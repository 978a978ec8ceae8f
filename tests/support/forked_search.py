"""The process of a search for culprits, forked with torch imported, and its trainers forked from it.

Both are the real ones; what is left out is `exec`, and with it the seconds in which a trainer imports torch, and the
lowest priority, at which tests that run beside these would keep them waiting for minutes. The last test of
`test_window_search.py` starts both as a daemon does, and sees the priority.
"""

import gc
import os
import runpy
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
from anyio.abc import UNIXSocketStream
from support.fork_server import Forked, become, fork_server

from apollod.adapters.system import processes
from apollod.supervisor.quality.window_replays import MODULE


class ServersProcess:
    """What `ChildProcess` asks of a process, for a child of the fork server."""

    def __init__(self, forked: Forked, stdin: UNIXSocketStream, stdout: UNIXSocketStream) -> None:
        self.pid, self.stdin, self.stdout = forked.pid, stdin, stdout
        self.send_signal = forked.send_signal
        self._forked = forked

    @property
    def returncode(self) -> int | None:
        return self._forked.poll()

    async def wait(self) -> int:
        """Exit code, negative for a signal."""
        return await anyio.to_thread.run_sync(self._forked.wait, abandon_on_cancel=True)


async def spawn(
    module: str, args: Sequence[str], env: Mapping[str, str], log: Path, talks: bool = False
) -> processes.ChildProcess:
    """In place of `ChildProcess.spawn`, for the process of a search."""
    assert module == MODULE and not args and talks
    pairs = [socket.socketpair() for _ in ("stdin", "stdout")]
    command = ["-c", "from support.forked_search import run; run()"]
    with processes._open_log(log) as out, pairs[0][1] as stdin, pairs[1][1] as stdout:
        forked = fork_server().start(command, {**os.environ, **env}, (stdin, stdout, out), leads=True)
    streams = [await UNIXSocketStream.from_socket(ours) for ours, _ in pairs]
    return processes.ChildProcess(ServersProcess(forked, *streams), log)  # type: ignore[arg-type]


def run() -> None:
    """Be that process, whose trainers are forked."""
    from apollod.adapters.ipc import offline_trainer
    from apollod.adapters.system import own_process

    own_process.yield_to_others = lambda: None
    forking = SimpleNamespace(Popen=_forked, DEVNULL=subprocess.DEVNULL, TimeoutExpired=subprocess.TimeoutExpired)
    offline_trainer.subprocess = forking  # type: ignore[assignment]
    runpy.run_module(MODULE, run_name="__main__", alter_sys=True)


def _forked(command: Sequence[str], env: Mapping[str, str], **streams: Any) -> "subprocess.Popen[bytes]":
    """`subprocess.Popen` of a Python, which becomes it without `exec`."""

    def be() -> None:
        gc.freeze()
        os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)  # Popen waits until one of them is closed
        become(list(command[1:]), dict(env), [])

    return subprocess.Popen(command, env=env, preexec_fn=be, **streams)
