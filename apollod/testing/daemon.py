"""The one driver of a daemon: `apollod run` as a child process, driven the way a user drives it."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from apollod.adapters.ipc.channel import ask
from apollod.adapters.journal import journal_reader
from apollod.errors import ApolloError, DaemonUnreachable
from apollod.supervisor.child_commands import ENGINE_MODULE
from apollod.wire import messages as msg

UP = ("serving", "training", "paused")
READY_S = 600.0
LEARN_S = 1800.0
STOP_S = 120.0
HTTP_S = 120.0
PORTS = range(20_000, 32_000)
LOG_CHARACTERS = 2000  # end of each log shown in an error

Status = dict[str, Any]


class DaemonFailed(ApolloError):
    """A daemon that ended, or did not reach the awaited state in time."""


def free_port() -> int:
    """A free TCP port below the range from which the kernel gives ports to connections (net.ipv4.ip_local_port_range,
    from 32768 or 49152), so that it is still free seconds later, when the one it was chosen for listens."""
    for port in random.SystemRandom().sample(PORTS, 100):
        with socket.socket() as sock, suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port
    raise DaemonFailed(f"100 ports between {PORTS.start} and {PORTS.stop} are taken", "end what listens on them")


def without_empty(value: Any) -> Any:
    """JSON without the fields that say nothing: 0, false, null, empty texts, lists and objects."""
    if isinstance(value, dict):
        return {key: kept for key, one in value.items() if (kept := without_empty(one))}
    return [without_empty(one) for one in value] if isinstance(value, list) else value


def chat_line(question: str, answer: str) -> str:
    """A line of the inbox: a conversation of one turn."""
    return json.dumps({"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]})


def config_of(root: Path, model: Path, port: int, **sections: str) -> str:
    """A configuration with everything below `root`, and without the quality guard, which takes time. `sections`: more
    lines of a section; they extend a section set here, except `quality`, which they replace. Direct input is learned
    once, without a lesson, so that a test can count its steps."""
    lines = {
        "state": f'dir = "{root}/state"\n', "model": f'path = "{model}"\n', "engine": f"port = {port}\n",
        "inbox": f'path = "{root}/inbox"\n', "lessons": "direct = false\n",
        "quality": "" if "quality" in sections else "every_steps = 0\n",
    }  # fmt: skip
    return "".join(f"[{name}]\n{lines.get(name, '')}{sections.get(name, '')}" for name in {**lines, **sections})


class Daemon:
    """One state directory; may be started, killed and started again.

    `engine`: the module to start as the engine; empty: the real one. A wait gives up after `ready_s` or `learn_s`.
    """

    ready_s = READY_S
    learn_s = LEARN_S

    def __init__(self, root: Path, config: str, port: int, engine: str = "") -> None:
        """Write `config` (TOML) to `root/apollod.toml`; it must keep state and inbox below `root` and set `port`."""
        self.root = root
        self.port = port
        self.engine = engine
        self.config = root / "apollod.toml"
        self.socket = root / "state" / "run" / "apollod.sock"
        self.journal = root / "state" / "journal.db"
        self.inbox = root / "inbox"
        self.inbox.mkdir(parents=True, exist_ok=True)
        self.config.write_text(config, encoding="utf-8")
        self.process: subprocess.Popen[bytes] | None = None

    # --- its life -----------------------------------------------------------------------------------------------------

    def start(self, env: Mapping[str, str] = {}) -> "Daemon":
        """Start `apollod run`. `env` is added to our environment, without a service's runtime directory and
        configuration overrides."""
        with open(self.root / "daemon.log", "ab") as out:
            self.process = subprocess.Popen(self.command("run"), stdout=out, stderr=out, env=self.environment(env))
        return self

    def command(self, *verb: str) -> list[str]:
        """Arguments of `apollod` with this daemon's configuration."""
        return [sys.executable, "-m", "apollod", *verb, "--config", str(self.config)]

    def environment(self, env: Mapping[str, str] = {}) -> dict[str, str]:
        """The environment for `start`."""
        ours = {
            k: v
            for k, v in os.environ.items()
            if k != "RUNTIME_DIRECTORY" and not (k.startswith("APOLLOD_") and "__" in k)
        }
        return {**ours, **({ENGINE_MODULE: self.engine} if self.engine else {}), **env}

    def alive(self) -> bool:
        """True if it was started and has not ended."""
        return self.process is not None and self.process.poll() is None

    def stop(self, timeout_s: float = STOP_S) -> float:
        """Send SIGTERM; returns the seconds until it ended. Raises DaemonFailed for an exit code other than 0."""
        assert self.process is not None
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        if code := self.process.wait(timeout_s):
            raise self._failed(f"the daemon left with {code} when it was stopped")
        return time.monotonic() - began

    def end(self, timeout_s: float = STOP_S) -> None:
        """Stop it if it runs, by SIGKILL after `timeout_s`."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """Send SIGKILL to the supervisor alone; any process left afterwards is a bug of ours."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    # --- its output ---------------------------------------------------------------------------------------------------

    def request(self, request: Any, timeout_s: float = 10.0) -> dict[str, Any]:
        """The answer to a request over the socket. Raises what `ask` raises."""
        return ask(str(self.socket), request, timeout_s)

    def status(self) -> Status:
        """The status object. Raises DaemonUnreachable."""
        return self.request(msg.StatusRequest())

    def wait(
        self, done: Callable[[Status], Any], what: str, timeout_s: float | None = None, poll_s: float = 0.1,
        look: Callable[[Status], None] = lambda _: None,
    ) -> Status:  # fmt: skip
        """Poll status until `done`; `look` sees every status before that, and may raise. Raises DaemonFailed if that
        does not happen in time."""
        limit_s = self.ready_s if timeout_s is None else timeout_s
        deadline, status = time.monotonic() + limit_s, Status()
        while time.monotonic() < deadline:
            if self.process is not None and self.process.poll() is not None:
                raise self._failed(f"the daemon left with {self.process.returncode}: {self.last_line()}")
            try:
                status = self.status()
            except DaemonUnreachable:
                status = {}
            if status and done(status):
                return status
            look(status)
            time.sleep(poll_s)
        raise self._failed(f"not within {limit_s:g} s: {what}", f"status {json.dumps(without_empty(status))}")

    def _failed(self, what: str, said: str = "") -> DaemonFailed:
        """The error, with the log's warnings and the ends of all logs as a note in its traceback."""
        error = DaemonFailed(what, f"see {self.root}/daemon.log and {self.root}/state/log")
        log = self.log()
        warnings = "\n".join(line for line in log.splitlines() if "[error" in line or "[warning" in line)
        ends = f"--- daemon\n{log[-LOG_CHARACTERS:]}\n{self.child_logs()}"
        error.add_note(f"{said}\n--- warnings\n{warnings[:LOG_CHARACTERS]}\n{ends}")
        return error

    def wait_ready(self) -> Status:
        """Wait until the engine serves and a trainer is attached."""
        return self.wait(lambda s: s["state"] in UP, "ready")

    def wait_learned(self, trained: int) -> Status:
        """Wait until so many examples are learned and nothing is pending."""
        return self.wait(
            lambda s: s["queue"]["trained"] >= trained and not s["queue"]["pending"] and s["state"] == "serving",
            f"{trained} learned", self.learn_s,
        )  # fmt: skip

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """All rows of an SQL query on the journal file."""
        return journal_reader.query(self.journal, sql, row_limit=sys.maxsize, seconds=60.0).rows

    def log(self) -> str:
        """Its output up to now."""
        return (self.root / "daemon.log").read_text(encoding="utf-8", errors="replace")

    def last_line(self) -> str:
        """The last line of its output."""
        return "".join(self.log().splitlines()[-1:])

    def child_logs(self) -> str:
        """The ends of its children's logs."""
        files = sorted((self.root / "state" / "log").glob("*.log"))
        return "\n".join(
            f"--- {f.stem}\n{f.read_text(encoding='utf-8', errors='replace')[-LOG_CHARACTERS:]}" for f in files
        )

    # --- its input ----------------------------------------------------------------------------------------------------

    def drop(self, name: str, *lines: str) -> None:
        """Put a file into the inbox like a well-behaved writer: under a temporary name, then renamed."""
        part = self.inbox / f".{name}.part"
        part.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        part.rename(self.inbox / name)

    def submit(self, *lines: str, source: str = "driver") -> dict[str, Any]:
        """Submit lines over the socket."""
        return self.request(msg.SubmitRequest([f"{line}\n".encode() for line in lines], source))

    def ctl(self, *args: str, check: bool = True, wait_s: float = 120.0) -> "subprocess.CompletedProcess[str]":
        """Run `apollod ctl`, for at most `wait_s`. Raises DaemonFailed for an exit code other than 0 (with `check`),
        and for a traceback."""
        try:
            done = subprocess.run(
                self.command("ctl", *args), capture_output=True, text=True, timeout=wait_s, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise DaemonFailed(f"apollod ctl {args[0]} took more than {wait_s:.0f} s") from error
        if (check and done.returncode) or "Traceback" in done.stderr:
            raise DaemonFailed(f"apollod ctl {' '.join(args)} ended with {done.returncode}: {done.stderr}")
        return done

    # --- HTTP ---------------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Base URL of the engine."""
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> tuple[int, Any]:
        """Status and JSON body. Raises OSError without an answer."""
        return self._open(urllib.request.Request(self.url + path))

    def post(self, path: str, body: Any) -> tuple[int, Any]:
        """The same for a POST of JSON, or of raw bytes."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self._open(
            urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method="POST")
        )

    def _open(self, request: urllib.request.Request) -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(request, timeout=HTTP_S) as response:
                status, body = response.status, response.read()
        except urllib.error.HTTPError as error:
            status, body = error.code, error.read()
        return status, json.loads(body) if body else None
