"""The daemon for tests: on a copy of a model, with settings under which a few seconds show something.

The engine is the stub unless a test says `VLLM`: what is tested is then journal, recovery, settings and processes. A
test of what is served takes the fixture `running`, or a daemon with `VLLM`, which costs tens of seconds.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.commands import ran
from support.fork_server import engines_server, fork_server
from support.forked_daemon import BACKOFF

from apollod.errors import ApolloError
from apollod.testing import daemon as driver
from apollod.testing.daemon import chat_line as chat_line
from apollod.testing.daemon import free_port

STUB = "apollod.testing.stub_engine"
VLLM = "apollod.engine"
CRASH_ENGINE = os.environ.get("APOLLOD_CRASH_ENGINE", STUB)
"""What the crash tests kill: `make crash` takes vLLM."""
READY_TIMEOUT_S = 180.0
SOON = {BACKOFF: "0.1"}
"""Environment of a forked daemon that does not wait for long before it starts again what has died."""

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
warmup_steps = 0
max_tokens = 256
rescore = 0
[inbox]
path = "{root}/inbox"
[checkpoint]
delay_s = 3600
keep = 3
[log]
level = "debug"
"""
UNGUARDED = "[quality]\nevery_steps = 0\n"
"""Where a test does not say otherwise: a look at the probes takes seconds."""


PLAIN = "[lessons]\ndirect = false\n"
"""What is given directly is learned once, without a lesson, which these tests are not about."""
UNHELD = "hold = 0.0\n"
"""Of a forked daemon with vLLM: anchors are sixty answers of the served model, a minute of a processor. That they are
asked for and held is shown by the fixture `running`, in test_daemon.py."""


class Daemon(driver.Daemon):
    """One state directory; may be started, killed and started again. `extra`: more lines of configuration; what is
    given directly becomes a lesson only where they have a section `[lessons]`."""

    ready_s = learn_s = READY_TIMEOUT_S

    def __init__(self, root: Path, model: Path, extra: str = "", engine: str = STUB, as_users_do: bool = False) -> None:
        """`as_users_do`: all of its processes are started, none is forked; so it is for every daemon with vLLM where
        the crash tests take vLLM."""
        self.model = root / "model" / model.name if model.is_dir() else model
        """a copy of its own: checkpoints are written into it"""
        if model.is_dir() and not self.model.exists():
            shutil.copytree(model, self.model)
        root.mkdir(parents=True, exist_ok=True)
        port = free_port()
        self.as_users_do = as_users_do or (engine == VLLM == CRASH_ENGINE)
        extra += "" if "[lessons]" in extra else PLAIN if engine == STUB or self.as_users_do else PLAIN + UNHELD
        extra += "" if "[quality]" in extra else UNGUARDED
        super().__init__(root, CONFIG.format(root=root, model=self.model, port=port) + extra, port, engine)

    def start(self, env: Mapping[str, str] = {}) -> "Daemon":
        """In a process that was forked with everything imported that a trainer needs, and an engine: see
        `forked_daemon`."""
        if self.as_users_do:
            super().start(env)
            return self
        server = engines_server() if self.engine == VLLM else fork_server()
        code = (
            "import sys; from support.forked_daemon import run; "
            f"sys.exit(run({', '.join(map(repr, self.command('run')[3:]))}))"
        )
        with open(self.root / "daemon.log", "ab") as out, open(os.devnull) as null:
            self.process = server.start(["-c", code], self.environment(env), (null, out, out))  # type: ignore[assignment]
        return self

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Start it, wait until it is ready, and end it with the block."""
        try:
            self.start()
            self.wait_ready()
            yield
        finally:
            self.end()

    def ctl(self, *args: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """In a process that was forked, too."""
        if self.as_users_do:
            return super().ctl(*args, check=check)
        done = ran("ctl", *args, "--config", self.config)
        if (check and done.returncode) or "Traceback" in done.stderr:
            raise driver.DaemonFailed(f"apollod ctl {' '.join(args)} ended with {done.returncode}: {done.stderr}")
        return done

    def ask(self, request: Any) -> Any:
        """The answer to a request over the socket, or None where no daemon gives one (it may be dying)."""
        try:
            return self.request(request)
        except ApolloError:
            return None

    def logprob(self, ids: list[int]) -> float:
        """Mean log-probability of a prompt's tokens as served now."""
        body = {"model": "tiny", "prompt": ids, "max_tokens": 1, "prompt_logprobs": 0, "temperature": 0}
        status, answer = self.post("/v1/completions", body)
        assert status == 200, answer
        scored = answer["choices"][0]["prompt_logprobs"]
        values = [choices[str(token)]["logprob"] for token, choices in zip(ids[1:], scored[1:], strict=True)]
        return sum(values) / len(values)


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
