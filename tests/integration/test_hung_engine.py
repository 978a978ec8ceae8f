"""An engine that is up and answers nothing is ended, and another one started; one that answers late is not."""

import os
import signal
import time
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketStream
from support.daemon import Daemon
from support.invariants import journal_of
from support.llm_server import LlmServer, Request, send, serving

from apollod.adapters.llm.engine_watch import until_hung
from apollod.core import events as ev
from apollod.supervisor.config import load_config
from apollod.supervisor.executor.context import own_endpoint
from apollod.wire.engine_terms import BEGUN, ENDED

STALL_S = 3.0


def test_one_that_was_stopped_is_replaced_and_an_idle_one_is_left_alone(tmp_path: Path, tiny_model: Path) -> None:
    daemon = Daemon(tmp_path, tiny_model)
    daemon.config.write_text(daemon.config.read_text().replace("[engine]\n", f"[engine]\nstall_s = {STALL_S}\n"))
    daemon.start()
    try:
        first = daemon.wait_ready()["engine"]["pid"]
        time.sleep(1.25 * STALL_S)
        assert daemon.status()["engine"]["pid"] == first
        os.kill(first, signal.SIGSTOP)
        daemon.wait(lambda s: s["engine"]["ready"] and s["engine"]["pid"] != first, "another engine", 180)
        (exited,) = [one for one in journal_of(daemon) if isinstance(one, ev.EngineExited)]
        assert "[engine] stall_s" in exited.reason and "no token" in exited.reason
    finally:
        daemon.stop()


@pytest.mark.parametrize("users_end", [True, False])
def test_an_engine_with_much_to_do_answers_late_and_is_not_hung(users_end: bool) -> None:
    """It has no token to spare for us; requests of users end, or none does."""
    ended = 0

    async def behave(server: LlmServer, stream: SocketStream, request: Request) -> None:
        nonlocal ended
        if not request.path.startswith("/metrics"):
            await stream.receive()  # until whoever asks gives up
            return
        ended += users_end
        await send(stream, f"{BEGUN} {ended + 9}\n{ENDED} {ended}\n".encode())

    async def main() -> bool:
        async with serving() as server:
            server.otherwise = behave
            config = load_config(None, ["model.path=/m", f"engine.port={server.port}", "engine.stall_s=1.0"], {})
            with anyio.move_on_after(3.0) as scope:
                await until_hung(partial(own_endpoint, config), config.engine.stall_s)
            return scope.cancelled_caught

    assert anyio.run(main) is users_end


def test_a_refusal_is_an_answer() -> None:
    async def behave(server: LlmServer, stream: SocketStream, request: Request) -> None:
        await send(stream, b'{"error": "no model"}' if request.path.startswith("/v1") else b"", 501)

    async def main() -> bool:
        async with serving() as server:
            server.otherwise = behave
            config = load_config(None, ["model.path=/m", f"engine.port={server.port}", "engine.stall_s=1.0"], {})
            with anyio.move_on_after(2.5) as scope:
                await until_hung(partial(own_endpoint, config), config.engine.stall_s)
            return scope.cancelled_caught

    assert anyio.run(main)
