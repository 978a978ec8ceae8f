"""The process that runs an environment: asked one question at a time, its complaints kept, all its processes killed.

A thread reads its stderr at all times, so that an environment that prints a lot is never held up, and kills what is
left of the process group as soon as its first process has ended, while no other group can have its number. Programs
that left the group, as those of an agent do, are then found by a mark in their environment.
"""

import json
import os
import secrets
import select
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import anyio.to_thread
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from apollod.adapters.environments.environment_interface import REPLY_BYTES_MAX, WHY_MAX, object_of, shown
from apollod.adapters.system.processes import describe_exit, needed_of
from apollod.errors import EnvironmentFailed
from apollod.explain import reason

COMPLAINT_BYTES = 4096
PIPE_BYTES = 1 << 20  # at least what a pipe holds, which is 64 KiB unless a program asks for more
CLOSE_S = 3.0  # for an environment to clean up by itself
END_S = 1.0  # from the end of its replies to its own: Python closes files first
MARK = "APOLLOD_ENVIRONMENT"
"""environment variable of the process and of all that it starts, whatever sessions those lead"""
SWEEPS = 3  # looks for marked processes: one may start another while it is being killed


class ChildCommand(NamedTuple):
    """How a process of an environment is started. `python`: the interpreter; `script`: its file, run with the daemon's
    process id and `arguments`; `variables`: names of the daemon's environment variables that it gets besides those that
    any program needs."""

    python: str
    script: Path
    arguments: tuple[str, ...]
    cwd: Path | None
    variables: tuple[str, ...] = ()

    def words(self) -> list[str]:
        """The command line."""
        # -P: the directory of the script holds modules of ours; -u: what it prints is there when it dies
        return [self.python, "-P", "-u", str(self.script), str(os.getpid()), *self.arguments]

    def environment(self, mark: str) -> dict[str, str]:
        """Its environment variables; programs beside its interpreter are found first, as in a venv that is active."""
        found = needed_of(os.environ) | {one: os.environ[one] for one in self.variables if one in os.environ}
        path = os.pathsep.join(filter(None, (os.path.dirname(self.python), found.get("PATH"))))
        return {**found, "PATH": path, MARK: mark}


class KeptProcess:
    """The process of the environment `name`: started by the first question, which has to come from the main thread, and
    again by the next one after it failed. Questions are asked one after the other."""

    def __init__(
        self, name: str, command: ChildCommand, terms: Mapping[str, Any] | None, import_s: float, hint: str,
        reply_bytes: int = REPLY_BYTES_MAX,
    ) -> None:  # fmt: skip
        """`terms`: its first question, whose reply says whether it could be imported, within `import_s`; None: it says
        so unasked; `hint`: what to do where it could not; `reply_bytes`: longest reply."""
        self._name, self._command, self._terms = name, command, terms
        self._import_s, self._hint, self._reply_bytes = import_s, hint, reply_bytes
        self._process: EnvironmentProcess | None = None
        self._one_at_a_time = anyio.Lock()

    async def ask(self, questions: Sequence[Mapping[str, Any]], wanted: str, limit_s: float) -> list[dict[str, Any]]:
        """Return a reply to each question: an object with the key `wanted`, or with an `error` that is a text. Each may
        take `limit_s`. Raises EnvironmentFailed; a process that fails, or whose call is cancelled, is killed."""
        async with self._one_at_a_time:
            return [await self._ask(one, wanted, limit_s) for one in questions]

    async def close(self) -> None:
        """End the process, after the calls that came before; those that are not to be waited for have to be cancelled
        first."""
        with anyio.CancelScope(shield=True):
            async with self._one_at_a_time:
                process, self._process = self._process, None
                if process is not None:
                    await process.close()

    async def _ask(self, question: Mapping[str, Any], wanted: str, limit_s: float) -> dict[str, Any]:
        try:
            if self._process is None:
                self._process = await EnvironmentProcess.start(self._name, self._command, self._reply_bytes)
                imported = await self._process.ask(self._terms, "ready", self._import_s, "import")
                if "error" in imported:
                    happened = f"cannot be imported: {imported['error'][:WHY_MAX]}"
                    raise EnvironmentFailed(self._name, happened, self._hint, outside=True)
            return await self._process.ask(question, wanted, limit_s)
        except BaseException:  # cancellation too: the reply to this question may be under way
            process, self._process = self._process, None
            if process is not None:
                await process.end()
            raise


class EnvironmentProcess:
    """A running process of the environment `name`. It leads a session and a process group of its own."""

    def __init__(
        self, name: str, process: Process, complaint: bytearray, watcher: threading.Thread, reply_bytes: int
    ) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._name, self._process, self._complaint, self._watcher = name, process, complaint, watcher
        self._questions, self._replies = process.stdin, BufferedByteReceiveStream(process.stdout)
        self._reply_bytes = reply_bytes

    @classmethod
    async def start(cls, name: str, command: ChildCommand, reply_bytes: int) -> "EnvironmentProcess":
        """Start it; it gets no secret of the daemon's environment but those that the command names. Call from the main
        thread: it asks the kernel to die with the thread that started it (PR_SET_PDEATHSIG). Raises EnvironmentFailed.
        """
        cwd, mark = command.cwd, secrets.token_hex(16)
        stderr, its_stderr = os.pipe()
        try:
            with anyio.CancelScope(shield=True):  # a process that was started has to be known
                process = await anyio.open_process(
                    command.words(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=its_stderr, cwd=cwd,
                    start_new_session=True, env=command.environment(mark),
                )  # fmt: skip
        except (OSError, ValueError) as error:  # ValueError: a NUL in a path
            os.close(stderr)
            why = reason(error) if isinstance(error, OSError) else str(error)
            happened = f"cannot be started in {cwd or 'the directory of the daemon'}: {why}"
            hint = f"look whether that directory and {command.python} are there"
            raise EnvironmentFailed(name, happened, hint) from error
        finally:
            os.close(its_stderr)
        complaint = bytearray()
        watcher = threading.Thread(
            target=_watch, args=(process.pid, mark, stderr, complaint), name=f"watch-{process.pid}", daemon=True
        )
        watcher.start()
        return cls(name, process, complaint, watcher, reply_bytes)

    async def ask(
        self, question: Mapping[str, Any] | None, wanted: str, limit_s: float, doing: str = "answer"
    ) -> dict[str, Any]:
        """Return its next reply: an object with the key `wanted`, or with an `error` that is a text; `doing`: what
        takes that long.

        Raises EnvironmentFailed where none comes; `end` it then, and also where this is cancelled: a late reply would
        be taken for the next one's.
        """
        try:
            with anyio.fail_after(limit_s):
                if question is not None:
                    await self._say(json.dumps(question).encode() + b"\n")
                line = await self._replies.receive_until(b"\n", self._reply_bytes)
        except TimeoutError as error:
            happened = f"took longer than {limit_s:g} s to {doing} and was killed"
            raise EnvironmentFailed(self._name, happened, "make it faster, or allow it more time") from error
        except anyio.DelimiterNotFound as error:
            happened = f"sent a reply of more than {self._reply_bytes} bytes and was killed"
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


def _watch(pid: int, mark: str, stderr: int, complaint: bytearray) -> None:
    """Keep the last of what is written to `stderr` until the process has ended; then kill its group, and what else has
    its mark. Blocking; closes `stderr`."""
    try:
        with suppress(ProcessLookupError):  # it has ended already
            _keep_until_end(os.pidfd_open(pid), stderr, complaint)
    finally:
        os.close(stderr)
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        for _ in range(SWEEPS):
            if not _kill_marked(f"{MARK}={mark}".encode()):
                break


def _kill_marked(entry: bytes) -> int:
    """Kill all processes with this entry in their environment; return how many. Blocking."""
    killed = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):  # it has ended, or is another user's
            life = os.pidfd_open(int(pid))  # first, so that its number cannot have become another's
            try:
                if entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    signal.pidfd_send_signal(life, signal.SIGKILL)
                    killed += 1
            finally:
                os.close(life)
    return killed


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
