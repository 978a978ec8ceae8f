"""The real daemon for tests: `apollod run` as a child of its own, driven the way a user drives it."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from apollod.adapters import journal_reader
from apollod.cli.ctl import ask
from apollod.errors import ApolloError, DaemonUnreachable
from apollod.wire import messages as msg

READY_TIMEOUT_S = 180.0

CONFIG = """\
[state]
dir = "{root}/state"
[model]
path = "{model}"
[engine]
port = {port}
served_name = "tiny"
args = ["--max-model-len", "512", "--max-num-seqs", "8"]
[trainer]
lr = 1e-3
max_tokens = 256
[inbox]
path = "{root}/inbox"
rescan_s = 0.5
[checkpoint]
delay_s = 3600
keep = 3
[log]
level = "debug"
"""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def chat_line(question: str, answer: str) -> str:
    return json.dumps({"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]})


class Daemon:
    """One state directory; may be started, killed and started again."""

    def __init__(self, root: Path, model: Path, extra: str = "") -> None:
        self.root = root
        self.port = free_port()
        self.config = root / "apollod.toml"
        self.socket = root / "state" / "run" / "apollod.sock"
        self.journal = root / "state" / "journal.db"
        self.inbox = root / "inbox"
        self.inbox.mkdir(parents=True, exist_ok=True)
        self.model = root / "model" / model.name if model.is_dir() else model
        """a copy of its own: checkpoints are written into it"""
        if model.is_dir() and not self.model.exists():
            shutil.copytree(model, self.model)
        self.config.write_text(CONFIG.format(root=root, model=self.model, port=self.port) + extra)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, env: Mapping[str, str] = {}) -> "Daemon":
        """`env`: on top of the environment of the tests."""
        with open(self.root / "daemon.log", "ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "apollod", "run", "--config", str(self.config)], stdout=out, stderr=out, env={**os.environ, **env}
            )
        return self

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def ask(self, request: Any) -> Any:
        """The answer to a request over the socket, or None where no daemon gives one (it may be dying)."""
        try:
            return ask(str(self.socket), request)
        except ApolloError:
            return None

    def status(self) -> dict[str, Any]:
        return ask(str(self.socket), msg.StatusRequest())

    def wait(self, done: Callable[[dict[str, Any]], Any], what: str, timeout_s: float = READY_TIMEOUT_S) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        status: dict[str, Any] = {}
        while time.monotonic() < deadline:
            if self.process is not None and self.process.poll() is not None:
                raise AssertionError(f"the daemon left with {self.process.returncode}: {self.log()[-2000:]}")
            try:
                status = self.status()
            except DaemonUnreachable:
                status = {}
            if status and done(status):
                return status
            time.sleep(0.1)
        raise AssertionError(f"not within {timeout_s} s: {what}; status {json.dumps(status)}\n{self.log()[-4000:]}\n{self.child_logs()}")

    def wait_ready(self) -> dict[str, Any]:
        return self.wait(lambda s: s["state"] in ("serving", "training", "paused"), "ready")

    def wait_learned(self, trained: int) -> dict[str, Any]:
        return self.wait(
            lambda s: s["queue"]["trained"] >= trained and not s["queue"]["pending"] and s["state"] == "serving", f"{trained} learned"
        )

    def drop(self, name: str, *lines: str) -> None:
        part = self.inbox / f".{name}.part"
        part.write_text("".join(f"{line}\n" for line in lines))
        part.rename(self.inbox / name)

    def ctl(self, *args: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            [sys.executable, "-m", "apollod", "ctl", *args, "--config", str(self.config)], capture_output=True, text=True, timeout=120
        )
        assert not check or done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        return done

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        return journal_reader.query(self.journal, sql).rows

    def post(self, path: str, body: Any) -> tuple[int, dict[str, Any]]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self._open(urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method="POST"))

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        return self._open(urllib.request.Request(self.url + path))

    def _open(self, request: urllib.request.Request) -> tuple[int, dict[str, Any]]:
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def logprob(self, ids: list[int]) -> float:
        """Mean log-probability of a prompt's tokens as served now."""
        body = {"model": "tiny", "prompt": ids, "max_tokens": 1, "prompt_logprobs": 0, "temperature": 0}
        status, answer = self.post("/v1/completions", body)
        assert status == 200, answer
        scored = answer["choices"][0]["prompt_logprobs"]
        values = [choices[str(token)]["logprob"] for token, choices in zip(ids[1:], scored[1:], strict=True)]
        return sum(values) / len(values)

    def stop(self) -> float:
        """SIGTERM; seconds until it was gone. Its exit code has to be 0."""
        assert self.process is not None
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0, self.log()[-3000:]
        return time.monotonic() - began

    def kill(self) -> None:
        """SIGKILL of the supervisor alone; whatever is left of it afterwards is a fault of ours."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def log(self) -> str:
        return (self.root / "daemon.log").read_text(errors="replace")

    def child_logs(self) -> str:
        texts = []
        for name in ("engine", "trainer"):
            file = self.root / "state" / "log" / f"{name}.log"
            if file.exists():
                texts.append(f"--- {name}\n{file.read_text(errors='replace')[-3000:]}")
        return "\n".join(texts)


def processes_of(module: str) -> list[int]:
    """Pids of running processes whose command line names a module."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                if module.encode() in Path(f"/proc/{entry}/cmdline").read_bytes():
                    found.append(int(entry))
            except OSError:
                continue
    return found


def group_of(pid: int) -> list[int]:
    """Live processes of a process group (zombies left out)."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == pid and fields[0] != "Z":
                found.append(int(entry))
    return found


def dead_within(pids: list[int], seconds: float) -> list[int]:
    """The groups of these pids that still have a process after that time."""
    deadline = time.monotonic() + seconds
    while (left := [pid for pid in pids if group_of(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left
