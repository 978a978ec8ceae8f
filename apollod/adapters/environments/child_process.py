"""The process that runs a Python environment: asked one question at a time, its complaints kept, its group killed.

A thread reads its stderr at all times, so that an environment that prints a lot is never held up, and kills what is
left of the process group as soon as its first process has ended, while no other group can have its number.
"""

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from apollod.adapters.environments import python_child
from apollod.adapters.environments.environment_interface import REPLY_BYTES_MAX, object_of, shown
from apollod.adapters.system.processes import describe_exit, needed_of
from apollod.errors import EnvironmentFailed
from apollod.explain import reason

COMPLAINT_BYTES = 4096
PIPE_BYTES = 1 << 20  # at least what a pipe holds, which is 64 KiB unless a program asks for more
CLOSE_S = 3.0  # for an environment to clean up by itself
END_S = 1.0  # from the end of its replies to its own: Python closes files first


class EnvironmentProcess:
    """A running process of the environment `name`. It leads a session and a process group of its own."""

    def __init__(self, name: str, process: Process, complaint: bytearray, watcher: threading.Thread) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._name, self._process, self._complaint, self._watcher = name, process, complaint, watcher
        self._questions, self._replies = process.stdin, BufferedByteReceiveStream(process.stdout)

    @classmethod
    async def start(cls, name: str, place: str, inside: str, cwd: Path | None) -> "EnvironmentProcess":
        """Start `python_child.py` in the directory `cwd`; it gets no secret of the environment. Call from the main
        thread: it asks the kernel to die with the thread that started it (PR_SET_PDEATHSIG).

        Its first reply, to no question, is whether the import succeeded. Raises EnvironmentFailed.
        """
        # -P: the directory of the script holds modules of ours; -u: what it prints is there when it dies
        command = [sys.executable, "-P", "-u", str(Path(python_child.__file__)), str(os.getpid()), place, inside]
        stderr, its_stderr = os.pipe()
        try:
            with anyio.CancelScope(shield=True):  # a process that was started has to be known
                process = await anyio.open_process(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=its_stderr, cwd=cwd,
                    start_new_session=True, env=needed_of(os.environ),
                )  # fmt: skip
        except (OSError, ValueError) as error:  # ValueError: a NUL in a path
            os.close(stderr)
            why = reason(error) if isinstance(error, OSError) else str(error)
            happened = f"cannot be started in {cwd or 'the directory of the daemon'}: {why}"
            raise EnvironmentFailed(name, happened, "look whether that directory is there") from error
        finally:
            os.close(its_stderr)
        complaint = bytearray()
        watcher = threading.Thread(
            target=_watch, args=(process.pid, stderr, complaint), name=f"watch-{process.pid}", daemon=True
        )
        watcher.start()
        return cls(name, process, complaint, watcher)

    async def ask(self, question: Mapping[str, Any] | None, wanted: str, limit_s: float) -> dict[str, Any]:
        """Return its next reply: an object with the key `wanted`, or with an `error` that is a text.

        Raises EnvironmentFailed where none comes; `end` it then, and also where this is cancelled: a late reply would
        be taken for the next one's.
        """
        try:
            with anyio.fail_after(limit_s):
                if question is not None:
                    await self._say(json.dumps(question).encode() + b"\n")
                line = await self._replies.receive_until(b"\n", REPLY_BYTES_MAX)
        except TimeoutError as error:
            doing = "import" if question is None else "answer"
            happened = f"took longer than {limit_s:g} s to {doing} and was killed"
            raise EnvironmentFailed(self._name, happened, "make it faster, or allow it more time") from error
        except anyio.DelimiterNotFound as error:
            happened = f"sent a reply of more than {REPLY_BYTES_MAX} bytes and was killed"
            raise EnvironmentFailed(self._name, happened, "shorten what it returns") from error
        except (anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            happened = await self._epitaph()
            hint = "repair what ends it; the next question starts it again"
            raise EnvironmentFailed(self._name, happened, hint) from error
        reply = object_of(line)
        if reply is None or not (isinstance(reply["error"], str) if "error" in reply else wanted in reply):
            happened = f"wrote nonsense where a reply belongs and was killed: {shown(line)}"
            raise EnvironmentFailed(self._name, happened, "let it write only to stdout and stderr")
        return reply

    async def close(self) -> None:
        """Let it end by itself, and kill what is left after CLOSE_S."""
        try:
            with anyio.move_on_after(CLOSE_S):
                await self._questions.aclose()
                await self._process.wait()
        finally:
            await self.end()

    async def end(self) -> None:
        """Kill its process group. Safe to call again."""
        with anyio.CancelScope(shield=True):
            with suppress(ProcessLookupError):
                self._process.kill()  # the thread kills the others
            await self._process.wait()
            await anyio.to_thread.run_sync(self._watcher.join)
            await self._process.aclose()

    async def _say(self, line: bytes) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            await self._questions.send(line)  # if it has ended, the reply will be missing

    async def _epitaph(self) -> str:
        """Describe the end of a process whose replies have ended."""
        with anyio.move_on_after(END_S):
            await self._process.wait()
        code = self._process.returncode
        await self.end()  # the thread has read everything then
        last = shown(bytes(self._complaint).strip().rpartition(b"\n")[2])
        how = "closed the stream of its replies and was killed" if code is None else f"died ({describe_exit(code)})"
        return f"{how}: {last}" if last else how


def _watch(pid: int, stderr: int, complaint: bytearray) -> None:
    """Keep the last of what is written to `stderr` until the process has ended; then kill its group. Blocking; closes
    `stderr`."""
    try:
        with suppress(ProcessLookupError):  # it has ended already
            _keep_until_end(os.pidfd_open(pid), stderr, complaint)
    finally:
        os.close(stderr)
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def _keep_until_end(life: int, stderr: int, complaint: bytearray) -> None:
    """Read `stderr` until `life` is readable, as it is once the process has ended, and close `life`."""
    poll = select.poll()
    poll.register(life, select.POLLIN)  # looked at first: what was written before the end is then there to be read
    poll.register(stderr, select.POLLIN)
    ready: set[int] = set()
    while life not in ready:
        ready = {descriptor for descriptor, _ in poll.poll()}
        if stderr in ready:
            chunk = os.read(stderr, PIPE_BYTES)
            complaint += chunk
            del complaint[:-COMPLAINT_BYTES]
            if not chunk:
                poll.unregister(stderr)
    os.close(life)
