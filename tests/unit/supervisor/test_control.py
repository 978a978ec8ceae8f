"""Whoever says nothing, too much or nonsense on the control socket costs nothing."""

import errno
import os
import socket
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from apollod.adapters.ipc.control_client import ask
from apollod.adapters.ipc.sockets import listen
from apollod.errors import ApolloError
from apollod.supervisor import control
from apollod.supervisor.control import CONNECTIONS_MAX, Control
from apollod.supervisor.requests.handlers import HANDLERS
from apollod.wire import messages as msg

NOBODY_ASKED: Any = None  # no request comes as far as the daemon


def hung_up(path: Path, strangers: list[socket.socket]) -> float:
    """Seconds until all of these, who connected and said what they had to say, are hung up on."""

    async def main() -> float:
        async with await listen(path) as listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, Control(NOBODY_ASKED).handle)
            began = time.monotonic()
            await anyio.to_thread.run_sync(meet)
            tasks.cancel_scope.cancel()
            return time.monotonic() - began

    def meet() -> None:
        for stranger in strangers:
            stranger.settimeout(10)
            stranger.connect(str(path))
        for number, stranger in enumerate(strangers):
            says[number % len(says)](stranger)
        for stranger in strangers:
            assert stranger.recv(1) == b""

    return anyio.run(main)


def passes_descriptors(stranger: socket.socket) -> None:
    socket.send_fds(stranger, [b"\0"], [stranger.fileno()] * 8)


says = [
    lambda stranger: None,
    lambda stranger: stranger.sendall(b"\0\0"),  # half a header
    lambda stranger: stranger.sendall((100).to_bytes(4, "big") + b"x"),  # the rest never comes
    lambda stranger: stranger.sendall((0xFFFFFFFF).to_bytes(4, "big")),
    lambda stranger: stranger.sendall((2).to_bytes(4, "big") + b"no"),
    passes_descriptors,
]


def test_silent_slow_loud_and_strange_peers_are_hung_up_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "FIRST_MESSAGE_S", 0.2)
    before = len(os.listdir("/proc/self/fd"))
    strangers = [socket.socket(socket.AF_UNIX) for _ in range(2 * CONNECTIONS_MAX)]
    with capture_logs() as lines:
        seconds = hung_up(tmp_path / "s", strangers)
    for stranger in strangers:
        stranger.close()
    assert seconds < 5, "twice as many as there is room for wait for one another once"
    assert len(os.listdir("/proc/self/fd")) <= before + 1, "a descriptor that was passed stays open"
    said = [line["event"] for line in lines]
    assert set(said) == {"control.silent_peer", "control.refused"} and len(said) == len(strangers)
    assert any("announces 4294967295 bytes" in line.get("error", "") for line in lines)


def test_a_request_that_the_system_does_not_let_be_answered_is_refused_and_the_next_one_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request without a file left to open would have ended the daemon, and serving with it."""
    answers = iter([OSError(errno.EMFILE, "Too many open files", "/proc/cpuinfo"), msg.Reply({"state": "serving"})])

    async def handler(daemon: Any, request: Any) -> msg.Answer:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setitem(HANDLERS, msg.StatusRequest, handler)

    async def main() -> None:
        async with await listen(tmp_path / "s") as listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, Control(NOBODY_ASKED).handle)
            with pytest.raises(ApolloError, match="/proc/cpuinfo: Too many open files") as refused:
                await anyio.to_thread.run_sync(ask, str(tmp_path / "s"), msg.StatusRequest(), 10.0)
            assert refused.value.hint
            assert (await anyio.to_thread.run_sync(ask, str(tmp_path / "s"), msg.StatusRequest(), 10.0))["state"]
            tasks.cancel_scope.cancel()

    anyio.run(main)
