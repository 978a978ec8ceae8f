"""The real daemon as the thing measured."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from apollod.cli.ctl import ask
from apollod.errors import DaemonUnreachable
from apollod.wire import messages as msg

CONFIG = """\
[state]
dir = "{root}/state"
[model]
path = "{model}"
[engine]
port = {port}
served_name = "bench"
args = ["--max-model-len", "1024", "--max-num-seqs", "16"]
[inbox]
path = "{root}/inbox"
[checkpoint]
delay_s = 3600
[log]
level = "warning"
[trainer]
{trainer}"""


def build_model(path: Path, kind: str) -> Path:
    """Build a small Qwen3.5 here; its text output goes to stderr."""
    subprocess.run(
        [sys.executable, "-m", "apollod.trainer.tiny", str(path), "--kind", kind], check=True, stdout=sys.stderr,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    return path


class Daemon:
    """Started, asked, fed and stopped as a user would."""

    def __init__(self, root: Path, model: Path, trainer: str = "") -> None:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            port = sock.getsockname()[1]
        self._root = root
        self.url = f"http://127.0.0.1:{port}"
        self.socket = root / "state" / "run" / "apollod.sock"
        self._config = root / "apollod.toml"
        self._config.write_text(CONFIG.format(root=root, model=model, port=port, trainer=trainer))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start `apollod run`."""
        with open(self._root / "daemon.log", "ab") as out:
            command = [sys.executable, "-m", "apollod", "run", "--config", str(self._config)]
            self._process = subprocess.Popen(command, stdout=out, stderr=out)

    def status(self) -> dict[str, Any]:
        """The status object."""
        return ask(str(self.socket), msg.StatusRequest())

    def wait(self, done: Callable[[dict[str, Any]], bool], what: str, timeout_s: float = 600.0, poll_s: float = 0.1) -> dict[str, Any]:
        """Poll until `done`; leaves the program with the daemon's log where it does not happen."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and (self._process is None or self._process.poll() is None):
            try:
                status = self.status()
                if done(status):
                    return status
            except DaemonUnreachable:
                pass
            time.sleep(poll_s)
        raise SystemExit(f"the daemon took too long {what}:\n{(self._root / 'daemon.log').read_text()[-2000:]}")

    def wait_ready(self) -> dict[str, Any]:
        """Engine serves, trainer is attached."""
        return self.wait(lambda s: s["state"] in ("serving", "training", "paused"), "to be ready")

    def ctl(self, verb: str) -> None:
        """pause or resume."""
        ask(str(self.socket), msg.PauseRequest() if verb == "pause" else msg.ResumeRequest())

    def submit(self, text: str) -> None:
        """Give lines over the socket."""
        ask(str(self.socket), msg.SubmitRequest([line.encode() + b"\n" for line in text.splitlines()], "bench"))

    def stop(self) -> None:
        """SIGTERM and wait."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(120)
