"""A process with torch, transformers and numba imported that forks children: a trainer for a test comes up in a
fraction of a second instead of five.

What is forked is a process like any other: `python -m MODULE` or `python -c CODE` with an environment and standard
streams of its own, its own exit code, killed when its parent dies. What apollod reads from the environment at import,
its failpoints, is read again in the child. It is sound because the server has one thread, also after it loaded the
compiled kernels: no pool of threads exists that a fork would lose; and because nothing else is read at import
(`test_fork_server.py` looks).

The server's parent is the test session; when that ends, the server's socket closes, it leaves, and its children die
with it.
"""

import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

TESTS = Path(__file__).parent.parent
START_S = 600.0
"""A server imports torch and vLLM before it forks: minutes on a busy machine."""
ENVIRONMENT = {  # what these packages read at import: as `apollod.trainer` sets it
    "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "TRANSFORMERS_VERBOSITY": "error",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"),
}  # fmt: skip
VLLM = (
    "vllm.entrypoints.launchers.api_server.entry", "vllm.entrypoints.launchers.cli_args", "vllm.v1.engine.core",
)  # fmt: skip


# --- the side of the tests
# ----------------------------------------------------------------------------------------------


class Forked:
    """A child of the server, with what tests use of `subprocess.Popen`."""

    def __init__(self, server: "ForkServer", pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._server = server
        self._pidfd: int | None = None
        with suppress(ProcessLookupError):  # it may have ended
            self._pidfd = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """Exit code, negative for a signal; None while it lives."""
        if self.returncode is None:
            self.returncode = self._server.exit_of(self.pid, 0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The same, when it has ended. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            self.returncode = self._server.exit_of(self.pid, timeout)
        if self.returncode is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(f"pid {self.pid}", timeout)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """By a descriptor, so that it never meets a stranger with the same pid."""
        if self.poll() is None and self._pidfd is not None:
            with suppress(ProcessLookupError):  # it has just ended
                signal.pidfd_send_signal(self._pidfd, number)

    def kill(self) -> None:
        """kill -9."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def __del__(self) -> None:
        if self._pidfd is not None:
            os.close(self._pidfd)


class ForkServer:
    """The connection to the server, which is started here. `imports`: what its children have imported already:
    "daemons'" (what trainers and daemons import), "engines'" (that, and what engines do), "ours" (all modules of
    commands) or "nothing"."""

    def __init__(self, imports: str = "daemons'") -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "support.fork_server", str(theirs.fileno()), imports]
            environment = {
                **os.environ,
                **ENVIRONMENT,
                "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]),
            }
            self.process = subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()])
        self._socket, self._lines = ours, ours.makefile("r")
        self._exits: dict[int, int] = {}
        self._pids: list[int] = []
        self._told = threading.Condition()
        threading.Thread(target=self._listen, daemon=True).start()

    def start(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        streams: Sequence[int | IO[Any]] = (0, 1, 2),
        leads: bool = False,
    ) -> Forked:
        """Fork a child as `python ARGUMENTS...`; its APOLLOD_PARENT_PID is the server's. `leads`: a process group of
        its own, from the beginning."""
        told = {**environment, "APOLLOD_PARENT_PID": str(self.process.pid)}
        request = json.dumps({"arguments": list(arguments), "environment": told, "leads": leads})
        descriptors = [stream if isinstance(stream, int) else stream.fileno() for stream in streams]
        with self._told:
            message = request.encode()
            socket.send_fds(self._socket, [len(message).to_bytes(4, "big")], descriptors)
            self._socket.sendall(message)
            if not self._told.wait_for(lambda: self._pids or self.process.poll() is not None, START_S):
                self.process.kill()  # what it told later would be taken for the process of the next request
            assert self._pids, "the fork server does not answer"
            return Forked(self, self._pids.pop())

    def exit_of(self, pid: int, timeout: float | None) -> int | None:
        """Exit code of a child; None after `timeout`."""
        with self._told:
            self._told.wait_for(lambda: pid in self._exits, timeout)
            return self._exits.get(pid)

    def _listen(self) -> None:
        with suppress(ConnectionError):  # it was killed
            for line in self._lines:
                what, pid, code = json.loads(line)
                with self._told:
                    if what == "forked":
                        self._exits.pop(pid, None)  # of another one that had its number
                        self._pids.append(pid)
                    else:
                        self._exits[pid] = code
                    self._told.notify_all()


@cache
def fork_server() -> ForkServer:
    """The one of this session."""
    return ForkServer()


@cache
def commands_server() -> ForkServer:
    """One of this session whose children have the modules of every command imported."""
    return ForkServer("ours")


@cache
def engines_server() -> ForkServer:
    """One of this session whose children have vLLM imported, too."""
    return ForkServer("engines'")


def said(code: str, *arguments: str, environment: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Exit code and output, of both streams, of `python -c CODE ARGUMENTS...`."""
    with tempfile.TemporaryFile("w+") as out:
        child = fork_server().start(["-c", code, *arguments], {**os.environ, **(environment or {})}, (0, out, out))
        exit_code = child.wait(120)
        out.seek(0)
        return exit_code, out.read()


class ForkedPopen:
    """In place of the module `subprocess` where that starts a trainer for an offline replay
    (`adapters.ipc.offline_trainer`), or a process that reads a model's shapes (`store.model_files`)."""

    DEVNULL = subprocess.DEVNULL
    TimeoutExpired = subprocess.TimeoutExpired

    @staticmethod
    def Popen(command: Sequence[str], env: Mapping[str, str], stdin: int, stdout: int) -> Forked:
        """`python ARGUMENTS...`, forked; its errors go where ours go."""
        assert command[0] == sys.executable and stdin == subprocess.DEVNULL
        with open(os.devnull) as null:
            return fork_server().start(command[1:], env, (null, stdout, 2))

    @staticmethod
    def run(
        command: Sequence[str], capture_output: bool, text: bool, timeout: float, check: bool
    ) -> "subprocess.CompletedProcess[str]":
        """`python ARGUMENTS...`, forked, until it ends."""
        assert command[0] == sys.executable and capture_output and text and not check
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err, open(os.devnull) as null:
            child = fork_server().start(command[1:], os.environ, (null, out, err))
            try:
                code = child.wait(timeout)
            finally:
                child.kill()
            for stream in (out, err):
                stream.seek(0)
            return subprocess.CompletedProcess(command, code, out.read(), err.read())


class ForkedPipes:
    """In place of the module `subprocess` where that starts a process that counts tokens (`adapters.tokens`)."""

    PIPE, DEVNULL = subprocess.PIPE, subprocess.DEVNULL

    @staticmethod
    @contextmanager
    def Popen(command: Sequence[str], stdin: int, stdout: int, stderr: int) -> Iterator[Any]:
        """`python ARGUMENTS...`, forked, whose standard streams are pipes."""
        assert command[0] == sys.executable and stdin == stdout == subprocess.PIPE and stderr == subprocess.DEVNULL
        reads, asks = os.pipe()
        answers, writes = os.pipe()
        with open(asks, "wb") as into, open(answers, "rb") as out, open(os.devnull, "w") as null:
            try:
                child = fork_server().start(command[1:], os.environ, (reads, writes, null))
            finally:
                os.close(reads)
                os.close(writes)
            yield SimpleNamespace(stdin=into, stdout=out, kill=child.kill)
            child.wait(START_S)


# --- the server
# ---------------------------------------------------------------------------------------------------------


def serve(connection: socket.socket, imports: str) -> None:
    """Fork for each request until the session hangs up. Children that end are told of by SIGCHLD, through a wake-up
    descriptor."""
    kept = {"daemons'": _import_what_is_heavy, "engines'": _import_engines, "ours": _import_ours, "nothing": list}[
        imports
    ]()
    assert (kept or imports == "nothing") and threading.active_count() == 1
    woken, wakes = socket.socketpair()
    for each in (woken, wakes):
        each.setblocking(False)
    signal.set_wakeup_fd(wakes.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    import select

    gc.freeze()  # collections of the children pass over what was imported
    while True:
        ready, _, _ = select.select([connection, woken], [], [])
        if woken in ready:
            woken.recv(4096)
            _tell_of_ended(connection)
        if connection in ready:
            request = _request(connection)
            if request is None:
                return
            fields, streams = request
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for each in (connection, woken, wakes):
                    each.close()
                become(fields["arguments"], fields["environment"], streams)
            if fields["leads"]:
                os.setpgid(pid, pid)
            for descriptor in streams:
                os.close(descriptor)
            connection.sendall(f"{json.dumps(['forked', pid, 0])}\n".encode())


def _import_what_is_heavy() -> list[object]:
    """What a trainer and a daemon import. Returns what was imported of ours."""
    from apollod import foreign_wheels

    foreign_wheels.guard()
    from transformers import Qwen3_5ForCausalLM, TokenizersBackend  # noqa: F401 - what is imported when a model is bound

    import apollod.cli.main
    import apollod.supervisor.app
    import apollod.trainer.offline  # noqa: F401 - and with it everything else
    from apollod.trainer.kernels import kernels_cpu
    from apollod.trainer.undo import undo_codec

    for kernels in (kernels_cpu, undo_codec):  # loading what numba compiled takes most of a trainer's start
        kernels.warm_up()
    return [module for name, module in sys.modules.items() if name.partition(".")[0] == "apollod"]


def _import_engines() -> list[object]:
    """What an engine and its core import of vLLM, too. Loaded when they are used, and read then: the environment."""
    os.environ |= {"VLLM_NO_USAGE_STATS": "1", "TORCHDYNAMO_DISABLE": "1"}
    kept = _import_what_is_heavy()
    for name in VLLM:
        importlib.import_module(name)
    return kept


def _import_ours() -> list[object]:
    """Whatever a command may import of ours. For children whose environment at import is the server's."""
    packages = [
        importlib.import_module(f"apollod.{name}") for name in ("adapters", "cli", "store", "supervisor", "wire")
    ]
    names = [
        module.name
        for package in packages
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ]
    return [importlib.import_module(name) for name in names]


def _request(connection: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """The next one and its three descriptors; None when the session is gone."""
    head, streams, _, _ = socket.recv_fds(connection, 4, 3)
    if not head:
        return None
    length, text = int.from_bytes(head, "big"), b""
    while len(text) < length:
        text += connection.recv(length - len(text))
    return json.loads(text), list(streams)


def _tell_of_ended(connection: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        connection.sendall(f"{json.dumps(['ended', pid, os.waitstatus_to_exitcode(status)])}\n".encode())


def become(arguments: list[str], environment: dict[str, str], streams: list[int]) -> None:
    """Be `python ARGUMENTS...`; never returns."""
    import runpy

    code = 1
    try:
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(environment)
        tempfile.tempdir = None  # what Python found for the server's TMPDIR
        kind, what, *rest = arguments
        sys.argv = [kind if kind == "-c" else what, *rest]
        sys.orig_argv = [sys.executable, *arguments]
        _take_path()
        _read_again()
        if kind == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            exec(compile(what, "<string>", "exec"), {"__name__": "__main__", "__builtins__": __builtins__})
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 0 if leaving.code is None else 1
        if isinstance(leaving.code, str):
            sys.stderr.write(f"{leaving.code}\n")
    except BaseException:  # noqa: BLE001 - what Python itself does at the top
        import traceback

        traceback.print_exc()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]  # as the interpreter does at its end, executors first
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _read_again() -> None:
    """What apollod reads from the environment at import. Where that is refused, it is imported again, and refused by
    whoever does so."""
    if (failpoints := sys.modules.get("apollod.failpoints")) is not None:
        try:
            importlib.reload(failpoints)
        except Exception:  # noqa: BLE001 - said by the one who imports it
            for name in [name for name in sys.modules if name.partition(".")[0] == "apollod"]:
                del sys.modules[name]


def _take_path() -> None:
    """What Python does at its start with PYTHONPATH: imports come from there, and a `sitecustomize` is run."""
    places = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    sys.path[:0] = [place for place in places if place not in sys.path]
    if any(Path(place, "sitecustomize.py").exists() for place in places):
        sys.modules.pop("sitecustomize", None)
        importlib.import_module("sitecustomize")


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
