"""A stand-in for the supervisor: a Unix socket that gives the engine memory and records what it says, and the real
engine.

Blocking sockets and threads, so that a test reads from top to bottom.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Queue
from typing import Any, TypeVar

import msgspec
import torch
from support import forked_engine
from support.daemon import group_of
from support.fork_server import Forked, engines_server

from apollod.testing.daemon import free_port
from apollod.wire import messages as msg
from apollod.wire.framing import FrameDecoder, encode_frame
from apollod.wire.manifest import Manifest, TensorEntry, tensor_digest

START_S = 120.0
_decoder = msgspec.msgpack.Decoder(msg.ToSupervisor)
T = TypeVar("T")
Answerer = Callable[[msg.Request], msg.Answer]


class Host:
    """The supervisor's side. `manifest` and `refusal` are what the loader sent, `memory` is the model's memory file."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "s"
        self.manifest: Manifest | None = None
        self.load_seconds = 0.0
        self.refusal: msg.LoadRefused | None = None
        self.hellos: list[msg.Hello] = []
        self.memory = torch.empty(0, dtype=torch.uint8)
        self.requests: list[msg.Request] = []
        self.answerer: Answerer = lambda request: msg.Reply({})
        self._api: Queue[socket.socket] = Queue()
        self._answers: Queue[Any] = Queue()
        self.deserted = False
        self._descriptor = -1
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def refresh(self, version: int, forget: str = "reset") -> msg.Refreshed:
        """Send RefreshEngine to the API process and wait for the answer."""
        return self.order(msg.RefreshEngine(version, forget), msg.Refreshed)

    def order(self, message: msgspec.Struct, kind: type[T]) -> T:
        """Send one message to the API process and wait for its answer, which has to be of this kind."""
        connection = self._api.get(timeout=START_S)
        self._api.put(connection)
        connection.sendall(encode_frame(msg.encode(message)))
        return self.told(kind)

    def told(self, kind: type[T], timeout_s: float = 60) -> T:
        """What the API process says next."""
        answer = self._answers.get(timeout=timeout_s)
        assert isinstance(answer, kind), answer
        return answer

    def hang_up(self) -> None:
        """Close the API process's connection, as the supervisor's death does."""
        self._api.get(timeout=START_S).shutdown(socket.SHUT_RDWR)
        self.deserted = True

    def entry(self, name: str) -> TensorEntry:
        assert self.manifest is not None
        return next(entry for entry in self.manifest.tensors if entry.name == name)

    def view(self, entry: TensorEntry) -> torch.Tensor:
        """The tensor in shared memory."""
        dtype: torch.dtype = getattr(torch, entry.dtype)
        return self.memory.view(dtype).as_strided(entry.shape, entry.stride, entry.offset // dtype.itemsize)

    def digests(self) -> dict[str, str]:
        """Of every tensor as it lies in memory now: what a trainer that sees the same would say."""
        assert self.manifest is not None
        views = {entry.name: self.view(entry).contiguous().reshape(-1) for entry in self.manifest.tensors}
        return {name: tensor_digest(view.view(torch.uint8).numpy()) for name, view in views.items()}

    def close(self) -> None:
        self._listener.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        framing = FrameDecoder()
        while data := connection.recv(1 << 20):
            for frame in framing.feed(data):
                self._handle(connection, _decoder.decode(frame))

    def _handle(self, connection: socket.socket, message: msg.ToSupervisor) -> None:
        match message:
            case msg.Hello(role=role):
                self.hellos.append(message)
                if role == "engine-api":
                    self._api.put(connection)
            case msg.Reserve(bytes=size):
                self._descriptor = os.memfd_create("test-weights")
                os.ftruncate(self._descriptor, size)
                self.memory = torch.from_file(
                    f"/proc/self/fd/{self._descriptor}", shared=True, size=size, dtype=torch.uint8
                )
                socket.send_fds(connection, [encode_frame(msg.encode(msg.Share(size)))], [self._descriptor])
            case msg.Loaded(manifest=manifest, seconds=seconds):
                self.manifest, self.load_seconds = manifest, seconds
            case msg.LoadRefused():
                self.refusal = message
            case msg.Refreshed() | msg.Paused() | msg.EngineResumeReport() | msg.Compared():
                self._answers.put(message)
            case (
                msg.StatusRequest()
                | msg.SubmitRequest()
                | msg.CheckpointRequest()
                | msg.FeedbackRequest()
                | msg.FeedbackQuestion()
                | msg.TeachRequest()
                | msg.TeachDocumentRequest()
                | msg.LessonQuestion()
                | msg.UpdateOpenRequest()
                | msg.UpdateJoinRequest()
                | msg.UpdateReceiveRequest()
                | msg.UpdateDirectoryRequest()
                | msg.UpdateCommitRequest()
                | msg.UpdateUndoRequest()
                | msg.UpdateLeaveRequest()
                | msg.LeaseRequest()
            ):
                self.requests.append(message)
                connection.sendall(encode_frame(msg.encode(self.answerer(message))))
            case _:
                raise AssertionError(f"the engine sent {message}")


class Engine:
    """`python -m apollod.engine` (or another `module`) on one model, with the environment that the supervisor would
    give it."""

    def __init__(
        self,
        directory: Path,
        model: Path,
        *extra: str,
        environment: dict[str, str] | None = None,
        module: str = forked_engine.MODULE,
        started: bool = False,
    ) -> None:
        """`started`: as a supervisor starts it; else it is forked (support/forked_engine.py)."""
        self.host = Host(directory)
        self.port = free_port()
        self.log = directory / "engine.log"
        temporary = directory / "t"
        temporary.mkdir()
        core = max(os.sched_getaffinity(0))
        env = os.environ | {
            "APOLLOD_SOCKET": str(self.host.path),
            "TMPDIR": str(temporary),
            "VLLM_PLUGINS": "apollod",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": "1",
            "TORCHDYNAMO_DISABLE": "1",
            "VLLM_LOGGING_LEVEL": "INFO",
        }
        command = [
            *("--model", str(model), "--served-model-name", "tiny"),
            *("--host", "127.0.0.1", "--port", str(self.port), "--load-format", "apollod"),
            *("--worker-extension-cls", "apollod.engine.worker.WorkerExtension"),
            *("--dtype", "bfloat16", "--max-model-len", "512", "--max-num-seqs", "8", "--enforce-eager"),
            *("--kv-cache-memory-bytes", str(128 << 20), "--distributed-executor-backend", "uni"),
            *extra,
        ]
        env |= environment or {}
        self._began = time.monotonic()
        self.process: subprocess.Popen[bytes] | Forked
        with self.log.open("wb") as log, open(os.devnull) as null:
            if module == forked_engine.MODULE and not started:
                before = f"import os; os.setsid(); os.sched_setaffinity(0, {{{core}}})"
                forked = forked_engine.command(*command, before=before)
                self.process = engines_server().start(forked, env, (null, log, log))
            else:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", module, *command],
                    env=env | {"APOLLOD_PARENT_PID": str(os.getpid())},
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    preexec_fn=lambda: os.sched_setaffinity(0, {core}),
                )
        self.ready_seconds = 0.0

    def wait_ready(self) -> "Engine":
        """Until /health answers; fails with the end of the log when the process ends first."""
        deadline = self._began + START_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"the engine ended with {self.process.returncode}:\n{self.tail()}")
            try:
                if self.get("/health")[0] == 200:
                    self.ready_seconds = time.monotonic() - self._began
                    return self
            except OSError:
                time.sleep(0.1)
        raise AssertionError(f"the engine is not ready after {START_S} s:\n{self.tail()}")

    def get(self, path: str, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        return self._request(urllib.request.Request(self.url(path), headers=headers or {}))

    def post(self, path: str, body: object, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        """POST JSON, or bytes as they are."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self._request(
            urllib.request.Request(self.url(path), data, {"Content-Type": "application/json", **(headers or {})})
        )

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def prompt_logprobs(self, tokens: Sequence[int]) -> list[float]:
        """Log-probability of tokens 1.. of the prompt, from one prefill of the served model."""
        status, answer = self.post(
            "/v1/completions", {"model": "tiny", "prompt": list(tokens), "max_tokens": 1, "prompt_logprobs": 0}
        )
        assert status == 200, answer
        given = answer["choices"][0]["prompt_logprobs"][1:]
        return [each[str(token)]["logprob"] for each, token in zip(given, tokens[1:], strict=True)]

    def group(self) -> list[int]:
        """Living processes of the engine's process group."""
        return sorted(group_of(self.process.pid))

    def shared_files(self) -> set[str]:
        """Files in /dev/shm that the engine's processes have mapped."""
        maps = "".join(Path(f"/proc/{pid}/maps").read_text() for pid in self.group())
        return {line.split()[5] for line in maps.splitlines() if "/dev/shm/" in line}

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-6000:]

    def close(self) -> None:
        """End whatever is left of it: politely first, since killing the group kills multiprocessing's cleaner as
        well."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        self.host.close()

    def _request(self, request: urllib.request.Request) -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                status, body = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, body = error.code, error.read()
        return status, json.loads(body) if body else None


def refused(engine: Engine) -> msg.LoadRefused:
    """What an engine that has to refuse told the supervisor, and its last lines say; it ends with 2."""
    try:
        assert engine.process.wait(60) == 2, engine.tail()
        assert engine.host.refusal is not None, engine.tail()
        assert engine.host.refusal.reason in engine.tail()
        return engine.host.refusal
    finally:
        engine.close()
