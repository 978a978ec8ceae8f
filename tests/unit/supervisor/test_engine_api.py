"""Orders to the engine's API process over a real socket: their order, what collapses, and what becomes of them when
it goes."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from apollod.adapters.ipc.sockets import Connection, listen
from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.errors import ApolloError
from apollod.supervisor.engine_api import EngineApi
from apollod.wire import messages as msg
from apollod.wire.framing import FrameDecoder, encode_frame

PAUSE = fx.PauseEngine(fx.RunStep(1, ("a",), ("d",), 1.0), trainer=7, clear=True, at_most_s=60.0)
_decoder = msgspec.msgpack.Decoder(msg.FromSupervisor)


class Peer:
    """The API process's end, blocking, in threads."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.socket.settimeout(10)
        self._framing, self._frames = FrameDecoder(), list[bytes]()

    async def next(self) -> Any:
        while not self._frames:
            self._frames += self._framing.feed(await anyio.to_thread.run_sync(self.socket.recv, 65536))
        return _decoder.decode(self._frames.pop(0))

    def say(self, message: msgspec.Struct) -> None:
        self.socket.sendall(encode_frame(msg.encode(message)))


@asynccontextmanager
async def connected(path: Path, api: EngineApi, ended: list[ApolloError]) -> AsyncIterator[Peer]:
    async def handle(stream: Any) -> None:
        try:
            await api.serve(Connection(stream))
        except ApolloError as error:
            ended.append(error)

    listener = await listen(path)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, handle)
        peer = Peer(path)
        with anyio.fail_after(120):
            yield peer
        peer.socket.close()
        tasks.cancel_scope.cancel()


def play(scenario: Any, tmp_path: Path) -> list[Any]:
    """Run `scenario(api, posted, ended, path)`; what was posted."""
    posted: list[Any] = []
    anyio.run(scenario, EngineApi(posted.append), posted, [], tmp_path / "s")
    return posted


def test_refreshes_in_a_row_collapse_to_the_newest_with_the_strongest_forgetting(tmp_path: Path) -> None:
    async def scenario(api: EngineApi, posted: list[Any], ended: list[ApolloError], path: Path) -> None:
        for order in (
            msg.RefreshEngine(1, "reset"),
            msg.RefreshEngine(2, "keep"),
            PAUSE,
            msg.RefreshEngine(3, "salt"),
            msg.ResumeEngine(),
            msg.ResumeEngine(),
        ):
            api.give(order)
        async with connected(path, api, ended) as peer:
            assert await peer.next() == msg.RefreshEngine(2, "reset")
            peer.say(msg.Refreshed(2, 0, 0.1))
            assert await peer.next() == msg.Pause(True, 60.0)
            assert api.served == 2
            peer.say(msg.Paused(0.02))
            assert await peer.next() == msg.RefreshEngine(3, "salt")
            peer.say(msg.Refreshed(3, 0, 0.1, "RuntimeError: no"))
            assert await peer.next() == msg.ResumeEngine()
            peer.say(msg.EngineResumeReport(0.5))
            await api.settled()
            assert api.served == 2, "a refresh that failed was not taken over"

    assert play(scenario, tmp_path) == [inp.EnginePauseReport(PAUSE, 0.02), inp.EngineResumeReport(0.5)]


def test_the_end_of_a_pause_that_lasted_too_long_answers_nothing(tmp_path: Path) -> None:
    async def scenario(api: EngineApi, posted: list[Any], ended: list[ApolloError], path: Path) -> None:
        async with connected(path, api, ended) as peer:
            api.give(msg.RefreshEngine(1))
            await peer.next()
            peer.say(msg.EngineResumeReport(60.0, expired=True))
            while not posted:
                await anyio.sleep(0.01)
            with pytest.raises(TimeoutError), anyio.fail_after(0.1):
                await api.settled()
            peer.say(msg.Refreshed(1, 0, 0.1))
            await api.settled()

    assert play(scenario, tmp_path) == [inp.EngineResumeReport(60.0, expired=True)]


def test_who_waits_for_a_process_that_goes_is_told(tmp_path: Path) -> None:
    async def scenario(api: EngineApi, posted: list[Any], ended: list[ApolloError], path: Path) -> None:
        api.give(PAUSE)
        api.give(msg.CompareWeights(4, 0, {}))
        async with connected(path, api, ended) as peer:
            await peer.next()
            peer.socket.close()
            await api.settled()
            api.give(PAUSE)
            assert len(ended) == 1

    first, compared, again = play(scenario, tmp_path)
    assert first.asked == again.asked == PAUSE and first.error == again.error == compared.error != ""
    assert compared.step == 4


def test_an_answer_to_nothing_ends_the_connection(tmp_path: Path) -> None:
    async def scenario(api: EngineApi, posted: list[Any], ended: list[ApolloError], path: Path) -> None:
        async with connected(path, api, ended) as peer:
            api.give(msg.RefreshEngine(1))
            await peer.next()
            peer.say(msg.Paused(0.1))
            while not ended:
                await anyio.sleep(0.01)
            assert "Paused" in str(ended[0])

    assert play(scenario, tmp_path) == []
