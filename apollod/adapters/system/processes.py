"""Child processes: each has its own session and process group, writes to a file of limited length, and is ended by
SIGTERM, then SIGKILL. And the user's commands (hooks), of which only the error is kept."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from apollod.explain import reason

LOG_BYTES_MAX = 16 << 20  # per child; a larger file is set aside once, at the next start
CUT_BYTES = 64 << 20
"""bytes of a log, above which it replaces the one older log while its child lives"""
TAIL_BYTES = 16384
HOOK_TAIL_BYTES = 2000
GROUP_GRACE_S = 3.0
GROUP_POLL_S = 0.05
LINE_BYTES_MAX = 1 << 20
_NEEDED = frozenset(
    "HOME LANG LANGUAGE LD_LIBRARY_PATH LOGNAME PATH PYTHONPATH SHELL TERM TMPDIR TZ USER VIRTUAL_ENV".split()
)
_ERROR_SIGNS = ("Error", "error:", "Value error, ")  # the last is pydantic's, below a line without content


def without_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment without configuration keys (`APOLLOD_SECTION__KEY`): they belong to the supervisor, and some are
    secret."""
    return {name: value for name, value in environ.items() if not (name.startswith("APOLLOD_") and "__" in name)}


def needed_of(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that any program needs to run; without keys and tokens."""
    return {name: value for name, value in environ.items() if name in _NEEDED or name.startswith("LC_")}


class ChildProcess:
    """A running child. The process group's id is the pid, since it leads a session of its own."""

    def __init__(self, process: Process, log: Path) -> None:
        self._process = process
        self._log = log
        self.pid: int = process.pid
        self.stopping = False
        self._ended = False
        self._lines = BufferedByteReceiveStream(process.stdout) if process.stdout is not None else None

    @classmethod
    async def spawn(
        cls, module: str, args: Sequence[str], env: Mapping[str, str], log: Path, talks: bool = False
    ) -> "ChildProcess":
        """Start `python -m module args` with `env` on top of our environment, see `without_settings`. Call from the
        main thread: the child asks the kernel to die with the thread that started it (PR_SET_PDEATHSIG). `talks`: it
        communicates over its standard streams, see `say` and `hear`."""
        with _open_log(log) as out:
            process = await anyio.open_process(
                [sys.executable, "-m", module, *args],
                stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
                stdout=subprocess.PIPE if talks else out,
                stderr=out,
                start_new_session=True,
                env={
                    **without_settings(os.environ),
                    **env,
                    "APOLLOD_PARENT_PID": str(os.getpid()),
                    "PYTHONUNBUFFERED": "1",
                },
            )
        return cls(process, log)

    async def wait(self) -> int:
        """Return the exit code, negative for a signal. The rest of the process group gets a moment to clean up
        (Python's resource tracker unlinks shared memory of processes that were killed), then it is killed too."""
        code = await self._process.wait()
        with anyio.move_on_after(GROUP_GRACE_S):
            while await anyio.to_thread.run_sync(_group_lives, self.pid):  # noqa: ASYNC110 - nobody signals the end of a group
                await anyio.sleep(GROUP_POLL_S)
        self._kill_group()
        self._ended = True  # the pid may be reused from now on
        return code

    async def stop(self, grace_s: float) -> None:
        """SIGTERM, wait `grace_s`, SIGKILL to the group. Safe to call again."""
        self.stopping = True
        if grace_s > 0 and self._process.returncode is None:
            try:
                self._process.send_signal(signal.SIGTERM)
            except ProcessLookupError:
                return
            with anyio.move_on_after(grace_s):
                await self._process.wait()
                return
        self._kill_group()

    async def say(self, line: bytes) -> None:
        """Write one line to its standard input; does nothing if it has ended."""
        assert self._process.stdin is not None
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._process.stdin.send(line + b"\n")

    async def hear(self) -> bytes | None:
        """Return the next line of its standard output; None at the end."""
        assert self._lines is not None
        try:
            return await self._lines.receive_until(b"\n", LINE_BYTES_MAX)
        except (anyio.EndOfStream, anyio.IncompleteRead, anyio.DelimiterNotFound, anyio.ClosedResourceError):
            return None

    async def hang_up(self) -> None:
        """Close both streams."""
        for stream in filter(None, (self._process.stdin, self._process.stdout)):
            await stream.aclose()

    def _kill_group(self) -> None:
        if self._ended:
            return
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return  # nothing is left, as it should be

    def owns(self, pid: int) -> bool:
        """True if `pid` is one of this child's processes."""
        try:
            return os.getpgid(pid) == self.pid
        except ProcessLookupError:
            return False

    def last_error(self) -> str:
        """Last line of its output that looks like an error, or "" (to be shown; no decision depends on it)."""
        try:
            with open(self._log, "rb") as f:
                f.seek(max(0, f.seek(0, os.SEEK_END) - TAIL_BYTES))
                lines = f.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return ""
        errors = [line.strip() for line in lines if any(sign in line for sign in _ERROR_SIGNS)]
        # pydantic's text after that is for programmers
        return errors[-1].partition(" [type=")[0][:300] if errors else ""


def _group_lives(pgid: int) -> bool:
    """True if the process group has a process that is not a zombie. (An init that does not reap leaves those.)"""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                state, _, group = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[:3]
            except OSError:
                continue  # it has just ended
            if int(group) == pgid and state != "Z":
                return True
    return False


def _open_log(path: Path) -> BinaryIO:
    """Open the log file to append; a file that has grown too large is set aside first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > LOG_BYTES_MAX:
        path.replace(path.with_suffix(".log.1"))
    return open(path, "ab", opener=lambda name, flags: os.open(name, flags, 0o600))


def cut_logs(directory: Path, longest: int = CUT_BYTES) -> list[Path]:
    """Copy each log of a directory that is too long to NAME.1 and empty it, since its child writes as long as it lives,
    keeps it open and appends; return their paths. Lines written in between are lost. Blocking; raises OSError if the
    disk takes no copy."""
    found = [path for path in sorted(directory.glob("*.log")) if path.stat().st_size > longest]
    for path in found:
        older = path.with_suffix(".log.1")
        part = path.with_suffix(".log.part")
        try:
            shutil.copyfile(path, part)
            part.chmod(0o600)
            part.replace(older)
        finally:
            part.unlink(missing_ok=True)
        os.truncate(path, 0)
    return found


def describe_exit(code: int) -> str:
    """ "exit code 3", or the signal's name."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def end_leftover(pid: int, module: str) -> bool:
    """Kill the process group of a child that a dead daemon left behind; return True if there was one. The command line
    is checked, since the pid may have been reused."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if pid <= 1 or module.encode() not in command:
            return False
        os.killpg(pid, signal.SIGKILL)
    except (OSError, ValueError):
        return False
    return True


async def run_hook(command: Sequence[str], environment: Mapping[str, str], timeout_s: float, told: bytes = b"") -> str:
    """Run the user's command after a checkpoint or at an alarm, with the facts in its environment (`environment` is all
    of it); return the error, empty for exit code 0. The daemon does not wait for it. After `timeout_s`, or when
    cancelled, its process group is killed. `told`: its standard input, which it need not read."""
    try:
        process = await anyio.open_process(
            list(command), stdin=subprocess.PIPE if told else subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True, env=environment,
        )  # fmt: skip
    except (OSError, ValueError) as error:  # ValueError: it contains a NUL
        return f"{command[0]} cannot be started: {reason(error) if isinstance(error, OSError) else error}"
    said = b""
    try:
        with anyio.move_on_after(timeout_s) as scope:
            assert process.stdout is not None
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(tell, process, told)
                async for chunk in process.stdout:
                    said = (said + chunk)[-HOOK_TAIL_BYTES:]
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


async def tell(process: Process, told: bytes) -> None:
    """Write the whole input of a process; one that does not read it is not an error."""
    if process.stdin is not None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            await process.stdin.send(told)
            await process.stdin.aclose()
