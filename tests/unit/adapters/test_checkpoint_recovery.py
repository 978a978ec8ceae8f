"""A recovery of many gigabytes, which the loop waits for, is no reason for a service manager to kill the daemon."""

import socket
import sys
from pathlib import Path

import pytest

from apollod.adapters.checkpoint_recovery import run_watched
from apollod.adapters.system.service import notify

COPIES = "import pathlib, sys, time\nfor n in range(40): pathlib.Path(sys.argv[1]).write_bytes(b'x'); time.sleep(0.05)"
HANGS = "import time; time.sleep(3)"


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> socket.socket:
    """Where a service manager hears of us."""
    heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    heard.bind(str(tmp_path / "notify"))
    heard.setblocking(False)
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    return heard


def told(manager: socket.socket) -> list[bytes]:
    found = list[bytes]()
    while True:
        try:
            found.append(manager.recv(100))
        except BlockingIOError:
            return found


def test_the_watchdog_hears_of_a_process_that_gets_on(manager: socket.socket, tmp_path: Path) -> None:
    code, out, _ = run_watched([sys.executable, "-S", "-c", f"{COPIES}\nprint('done')", str(tmp_path / "f")], 0.2)
    assert (code, out) == (0, b"done\n")
    assert len(heard := told(manager)) >= 4 and set(heard) == {b"WATCHDOG=1"}


def test_one_that_does_nothing_is_not_spoken_well_of(manager: socket.socket) -> None:
    """It reads its own files when it starts, and nothing from then on."""
    code, _, complaint = run_watched([sys.executable, "-S", "-c", f"{HANGS}; raise SystemExit('broken')"], 0.05)
    assert code == 1 and complaint == b"broken\n"
    assert len(told(manager)) < 30, "of some 60 looks"


def test_a_manager_that_does_not_read_holds_nobody_up(manager: socket.socket) -> None:
    """On a slow machine the queue of the socket, about ten messages, was full before anybody read."""
    for _ in range(200):
        notify("WATCHDOG=1")
    assert 1 < len(told(manager)) < 200
