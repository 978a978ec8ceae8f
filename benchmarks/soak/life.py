"""The daemon of a soak: as `apollod init` makes it, on the small world model, restarted as by systemd."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from apollod.errors import ApolloError
from apollod.testing import daemon as driver
from apollod.wire import messages as msg
from benchmarks.shipped import configured, initialised
from benchmarks.soak import watch
from benchmarks.soak.material import SETTINGS
from benchmarks.soak.records import Records
from benchmarks.soak.summary import DOWN_S
from benchmarks.thrown.refusing_disk import RefusingDisk

GONE_S = 20.0
RESTART_S = 5.0
"""RestartSec of contrib/systemd"""
RESTART = "restart the daemon"
UNWRITABLE = "the daemon ends, since only a new start can write to it"
MODEL = "apollo"

Status = driver.Status


def made(root: Path, acting: str) -> tuple[str, int]:
    """Configuration and port of a soak's directory, existing or new. The scripted model has another address each
    time."""
    file = root / "apollod.toml"
    if not file.exists():
        file.write_text(configured(initialised(root), SETTINGS), encoding="utf-8")
    port = driver.free_port()
    now = {"engine": {"port": port}, "[endpoint]": {"base_url": acting}}
    return configured(file.read_text("utf-8"), now), port


class Life:
    """One daemon, which may end and be started again; faults are recorded as missed, and the soak goes on. `slack`:
    factor for all time limits, for a busy machine."""

    def __init__(self, root: Path, acting: str, records: Records, slack: float = 1.0) -> None:
        self.slack = slack
        config, port = made(root, acting)
        self.daemon = driver.Daemon(root, config, port)
        self.disk = RefusingDisk(root)
        self._records = records
        self._said = len(self.daemon.log()) if (root / "daemon.log").exists() else 0

    # --- started and ended --------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int | None:
        """Pid of the supervisor; None if it does not run."""
        return self.daemon.process.pid if self.daemon.process and self.daemon.alive() else None

    def start(self) -> None:
        """Start it and wait until it serves and can learn."""
        self.daemon.start(self.disk.environment)
        self.up()

    def up(self) -> Status:
        """Wait until it serves and a trainer is attached; `resume` as a person would if a child was given up, and start
        it again if it ended or asks for a restart."""
        down_s = DOWN_S * self.slack
        deadline = time.monotonic() + down_s
        while time.monotonic() < deadline:
            status = self.tend()
            if status and status["state"] in driver.UP and status["engine"]["ready"] and status["trainer"]["ready"]:
                return status
            time.sleep(1.0)
        self.miss("not up", f"within {down_s:.0f} s: {self._told()}")
        raise driver.DaemonFailed(f"the daemon was not up within {down_s:.0f} s")

    def kill(self) -> None:
        """SIGKILL the supervisor; check that its children die with it, and start it again a little later."""
        family = watch.family(self.pid) if self.pid else []
        self.daemon.kill()
        self.buried(family)
        time.sleep(RESTART_S)
        self.daemon.start(self.disk.environment)

    def restart(self) -> None:
        """Restart it as a person would."""
        self.daemon.end(driver.STOP_S)
        time.sleep(RESTART_S)
        self.daemon.start(self.disk.environment)

    def buried(self, family: list[int]) -> None:
        """Check that none of these processes is left."""
        deadline = time.monotonic() + GONE_S * self.slack
        while (left := [pid for pid in family if watch.process(pid)]) and time.monotonic() < deadline:
            time.sleep(0.2)
        if left:
            self.miss("outlived", f"{[watch.process(pid) for pid in left]}"[:500])
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    # --- looked at ----------------------------------------------------------------------------------------------------

    def ask(self, request: Any, timeout_s: float = 60.0) -> dict[str, Any] | None:
        """The reply; None if the daemon refuses or does not answer now."""
        try:
            return self.daemon.request(request, timeout_s)
        except ApolloError:
            return None

    def tend(self) -> Status | None:
        """The status, after the reactions of a service manager or a person to it."""
        if not self.daemon.alive():
            self._ended()
            return None
        self._check_log()
        status = self.ask(msg.StatusRequest())
        if status is None:
            return None
        if RESTART in status["error"]:
            self.did("restart", status["error"], time.time(), time.time())
            self.restart()
        elif "training halted" in status["error"]:
            self.miss("halted", status["error"])
            self.ask(msg.ResumeRequest())
        elif any(status[role]["given_up"] for role in ("engine", "trainer")):
            self.did("resume", status["error"], time.time(), time.time())
            self.ask(msg.ResumeRequest())
        return status

    def wait(self, done: Callable[[Status], Any], what: str, seconds: float) -> Status | None:
        """Wait until `done` holds for the status; None, and a miss, if it does not in time."""
        deadline = time.monotonic() + seconds * self.slack
        while time.monotonic() < deadline:
            if (status := self.tend()) and done(status):
                return status
            time.sleep(1.0)
        self.miss("not in time", f"{what} within {seconds:.0f} s: {self._told()}")
        return None

    def miss(self, what: str, told: str) -> None:
        """Record a fault."""
        print(f"soak: MISSED {what}: {told[:600]}", file=sys.stderr, flush=True)
        self._records.keep("missed", {"at": time.time(), "what": what, "told": told[:4000]})

    def did(self, kind: str, told: str, began: float, until: float) -> None:
        """Record an act upon the daemon, with its begin and end."""
        when = {"at": began, "until": until, "slack": self.slack}
        self._records.keep("acts", {**when, "kind": kind, "told": told[:300]})

    def _ended(self) -> None:
        """Start it again, as a service manager would. An end is a fault, except after an error of the disk while no
        model was served."""
        assert self.daemon.process is not None
        told = f"with {self.daemon.process.returncode}: {self.daemon.log()[-1500:]}"
        if UNWRITABLE in told:
            self.did("restart", told, time.time(), time.time())
        else:
            self.miss("ended", told)
        time.sleep(RESTART_S)
        self.daemon.start(self.disk.environment)

    def _check_log(self) -> None:
        said = self.daemon.log()
        fresh, self._said = said[self._said :], len(said)
        if "Traceback" in fresh:
            self.miss("traceback", fresh[max(0, fresh.index("Traceback") - 200) :][:3000])

    def _told(self) -> str:
        status = self.ask(msg.StatusRequest()) or {}
        return str({name: status.get(name) for name in ("state", "error", "engine", "trainer", "start", "queue")})
