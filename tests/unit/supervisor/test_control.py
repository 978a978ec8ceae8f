"""Whoever says nothing, too much or nonsense on the control socket costs nothing."""

import errno
import os
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from structlog.testing import capture_logs
from support.journals import opened

from apollod.adapters.ipc.channel import ask
from apollod.adapters.ipc.light_client import connect
from apollod.adapters.ipc.sockets import listen
from apollod.core.state import State
from apollod.errors import ApolloError, DaemonUnreachable
from apollod.supervisor import control
from apollod.supervisor.control import CONNECTIONS_MAX, HANDLERS, Control
from apollod.supervisor.loop import Loop
from apollod.supervisor.requests.asked import Daemon
from apollod.wire import messages as msg
from apollod.wire.framing import encode_message

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
    monkeypatch.setattr(control, "FIRST_MESSAGE_S", 0.5)
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


@asynccontextmanager
async def busy(here: Path) -> AsyncIterator[tuple[str, Loop]]:
    """The socket of a daemon whose loop takes nothing: each request that waits for the journal waits for ever."""
    async with await listen(here / "s") as listener, opened(here / "j.db") as journal:
        loop = Loop(State(), journal)
        daemon = Daemon(NOBODY_ASKED, loop, journal, *[NOBODY_ASKED] * 4)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, Control(daemon).handle)
            with anyio.fail_after(60):
                yield str(here / "s"), loop
            tasks.cancel_scope.cancel()


async def waiting(path: str, loop: Loop) -> list[socket.socket]:
    """As many clients as there is room for, each with a request that waits."""
    clients = [connect(path) for _ in range(CONNECTIONS_MAX)]
    for client in clients:
        client.sendall(encode_message(msg.PauseRequest()))
    while len(loop._inputs) < CONNECTIONS_MAX:
        await anyio.sleep(0.01)
    return clients


async def asked(path: str, request: msgspec.Struct, timeout_s: float = 10.0) -> dict[str, Any]:
    return await anyio.to_thread.run_sync(ask, path, request, timeout_s)


NONE_TAKEN_BACK = msg.RelearnRequest(["unknown"])
"""answered without the loop, in a room that it shares with requests that wait"""


def test_requests_whose_clients_left_leave_their_room_to_others_and_are_not_carried_out(tmp_path: Path) -> None:
    async def main() -> None:
        async with busy(tmp_path) as (path, loop):
            clients = await waiting(path, loop)
            with pytest.raises(DaemonUnreachable):
                await asked(path, NONE_TAKEN_BACK, 0.2)
            for client in clients:
                client.close()
            with pytest.raises(ApolloError, match="unknown was not taken back"):
                await asked(path, NONE_TAKEN_BACK)
            assert not loop._inputs, "what nobody waits for any more is in the way of others"

    anyio.run(main)


def test_what_is_answered_at_once_has_room_beside_all_that_waits(tmp_path: Path) -> None:
    async def main() -> None:
        async with busy(tmp_path) as (path, loop):
            clients = await waiting(path, loop)
            assert (await asked(path, msg.QueueRequest()))["next"] == []
            for client in clients:
                client.close()

    anyio.run(main)


def test_a_client_that_says_more_than_its_request_is_answered_all_the_same(tmp_path: Path) -> None:
    async def main() -> None:
        async with busy(tmp_path) as (path, loop):
            clients = await waiting(path, loop)
            with closing(connect(path, 10.0)) as talker:
                talker.sendall(encode_message(NONE_TAKEN_BACK))
                await asked(path, msg.QueueRequest())  # the daemon has read what came before
                talker.sendall(b"more")
                for client in clients:
                    client.close()
                assert b"was not taken back" in await anyio.to_thread.run_sync(talker.recv, 4096)

    anyio.run(main)
