"""Is it a user? By the engine's counts, read over real HTTP from a server that counts as our plugin does."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import anyio
import pytest
from anyio.abc import SocketStream, TaskGroup
from hypothesis import given
from hypothesis import strategies as st
from support.llm_server import LlmServer, Request, good_answer, send, serving

from apollod.adapters.llm.client import HttpLlm
from apollod.adapters.llm.endpoint import Endpoint
from apollod.adapters.llm.engine_watch import SHORT, WHOLE, UserCounts, UserRequests
from apollod.adapters.llm.openai_api import Sampling
from apollod.core import inputs as inp
from apollod.errors import LlmNonsense
from apollod.supervisor.config import Config, load_config
from apollod.supervisor.dreaming import idle_watch
from apollod.supervisor.dreaming.dreamer import Dreamer
from apollod.supervisor.dreaming.idle_watch import IdleWatch, users_seen
from apollod.supervisor.executor.context import UnderWay, own_endpoint
from apollod.supervisor.judge import Judge
from apollod.wire.engine_terms import BEGUN, ENDED, NEXT_USER, OURS

KEY = "sk-engine"
ABORT_S = 0.05
"""until a request whose client left has ended"""


# --- what two looks show ---------------------------------------------------------------------------------------------

LIFE = st.lists(st.sampled_from(["comes", "goes", "look"]), max_size=60)


@given(life=LIFE)
def test_every_user_is_seen_at_the_next_look_however_short_and_nobody_else(life: list[str]) -> None:
    before, begun, ended, came = UserRequests(0, 0), 0, 0, False
    for what in [*life, "look", "look"]:
        if what == "look":
            now = UserRequests(begun, ended)
            assert users_seen(before, now) == (came or begun > ended)
            before, came = now, False
        elif what == "comes":
            begun, came = begun + 1, True
        elif ended < begun:
            ended += 1


def test_who_came_before_the_first_look_and_has_gone_is_not_seen() -> None:
    assert not users_seen(None, UserRequests(7, 7)) and users_seen(None, UserRequests(7, 6))


def test_an_engine_that_was_started_again_counts_from_nothing() -> None:
    assert not users_seen(UserRequests(7, 7), UserRequests(0, 0)) and users_seen(UserRequests(7, 7), UserRequests(1, 0))


# --- the watch, over HTTP -------------------------------------------------------------------------------------------


class Vllm:
    """Counts requests as our plugin does in vLLM; each is answered once `hold` is set."""

    def __init__(self) -> None:
        self.running = self.begun = self.ended = self.looks = 0
        self.hold = anyio.Event()
        self.metrics: Callable[[str], bytes | int | None] = self._text
        """of a path: the text, or an HTTP status; None: it never answers"""
        self.tells_of_the_next = False
        """knows `NEXT_USER`"""
        self.late_s = 0.0
        """so much longer it takes to answer that"""

    def _text(self, path: str) -> bytes:
        return f"{BEGUN} {self.begun}.0\n{ENDED} {self.ended}.0\n".encode()

    async def serve(self, server: LlmServer, stream: SocketStream, request: Request) -> None:
        if request.path.startswith(WHOLE):
            await self._look(stream, request.path)
            return
        if request.path.startswith(NEXT_USER):
            await self._next(stream, float(request.path.rpartition("=")[2]))
            return
        counted = OURS not in request.headers
        self.begun += counted
        self.running += 1
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._answer, counted, stream, request, tasks)
                await stream.receive()  # raises when the client leaves
        except* anyio.EndOfStream:
            await anyio.sleep(ABORT_S)
            self.running -= 1
            self.ended += counted
            raise anyio.EndOfStream from None

    async def _answer(self, counted: bool, stream: SocketStream, request: Request, tasks: TaskGroup) -> None:
        await self.hold.wait()
        self.running -= 1
        self.ended += counted
        await send(stream, json.dumps(good_answer(request)).encode())
        tasks.cancel_scope.cancel()

    async def _next(self, stream: SocketStream, within_s: float) -> None:
        begun = self.begun
        with anyio.move_on_after(within_s):
            while self.begun == begun and self.tells_of_the_next:
                await anyio.sleep(0.001)
        await anyio.sleep(self.late_s)
        await send(stream, json.dumps({"came": self.begun > begun}).encode(), 200 if self.tells_of_the_next else 404)

    async def _look(self, stream: SocketStream, path: str) -> None:
        self.looks += 1
        said = self.metrics(path)
        if said is None:
            await stream.receive()
        else:
            await send(stream, said if isinstance(said, bytes) else b"", 200 if isinstance(said, bytes) else said)


class Watched:
    """A watch of a server, with us and a user who ask there."""

    def __init__(self, vllm: Vllm, server: LlmServer, config: Config, tasks: TaskGroup) -> None:
        self.vllm, self.server, self.config, self.tasks = vllm, server, config, tasks
        self.posted: list[inp.Input] = []
        self.wanted = self.closely = True
        self.watch = IdleWatch(config, self.posted.append, lambda: self.wanted, lambda: self.closely)
        self.under_way = UnderWay(tasks)

    def ask(self, key: str, ours: bool, n: int = 1) -> None:
        async def work() -> None:
            endpoint = own_endpoint(self.config)
            async with HttpLlm(endpoint if ours else replace(endpoint, ours=False)) as llm:
                await llm.complete("x", Sampling(n=n))

        assert self.under_way.begin(key, work)

    async def until(self, there: Callable[[], Any]) -> None:
        with anyio.fail_after(120):
            while not there():
                await anyio.sleep(0.002)

    async def look(self, times: int = 4) -> None:
        """Until so many looks more have been taken."""
        looks = self.vllm.looks + times
        await self.until(lambda: self.vllm.looks >= looks)

    def said(self) -> list[bool]:
        return [cast(inp.EngineUse, one).users for one in self.posted]


@asynccontextmanager
async def watching(idle_s: float) -> AsyncIterator[Watched]:
    vllm = Vllm()
    async with serving() as server, anyio.create_task_group() as tasks:
        server.otherwise = vllm.serve
        config = load_config(
            None,
            ["model.path=/m", f"engine.port={server.port}", f"engine.api_key={KEY}", f"dream.idle_s={idle_s}"],
            environ={},
        )
        it = Watched(vllm, server, config, tasks)
        tasks.start_soon(it.watch.run)
        with anyio.fail_after(120):
            yield it
        tasks.cancel_scope.cancel()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_watch, "CLOSE_S", 0.01)
    monkeypatch.setattr(idle_watch, "WIDE_S", 0.1)


def play(scenario: Callable[[Watched], Awaitable[None]], idle_s: float = 0.0) -> Watched:
    found: list[Watched] = []

    async def main() -> None:
        async with watching(idle_s) as it:
            found.append(it)
            await scenario(it)

    anyio.run(main)
    return found[0]


def test_users_come_and_go_and_each_change_is_told_once() -> None:
    async def scenario(it: Watched) -> None:
        await it.look()
        assert it.said() == [False]
        it.ask("user", ours=False)
        await it.until(lambda: len(it.posted) == 2)
        await it.look()
        it.vllm.hold.set()
        await it.until(lambda: len(it.posted) == 3)
        await it.look()
        it.ask("in no time", ours=False)
        await it.until(lambda: len(it.posted) == 5)
        await it.look()

    it = play(scenario)
    assert it.said() == [False, True, False, True, False]
    looks = [request for request in it.server.requests if request.path.startswith(WHOLE)]
    assert {request.path for request in looks} == {SHORT}
    assert {request.headers["authorization"] for request in looks} == {f"Bearer {KEY}"}


def test_while_we_ask_the_engine_a_user_is_told_of_before_the_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_watch, "CLOSE_S", 600.0)
    monkeypatch.setattr(idle_watch, "READ_S", 600.0)

    async def scenario(it: Watched) -> None:
        it.vllm.tells_of_the_next = True
        await it.until(lambda: it.posted and any(one.path.startswith(NEXT_USER) for one in it.server.requests))
        it.ask("ours", ours=True)
        await it.until(lambda: it.vllm.running == 1)
        assert it.said() == [False]
        it.ask("user", ours=False)
        await it.until(lambda: len(it.posted) == 2)
        assert it.vllm.looks == 1

    assert play(scenario).said() == [False, True]


def test_an_engine_that_answers_late_delays_the_next_look_only() -> None:
    async def scenario(it: Watched) -> None:
        it.vllm.tells_of_the_next, it.vllm.late_s = True, 0.05
        await it.look(6)

    assert play(scenario).said() == [False]


def test_it_is_idle_only_after_idle_s_without_a_user_and_without_a_gap_in_what_is_known() -> None:
    idle_s = 1.5

    async def scenario(it: Watched) -> None:
        began = anyio.current_time()
        it.vllm.hold.set()
        for number in range(3):
            await anyio.sleep(0.6)
            it.vllm.begun, it.vllm.ended = it.vllm.begun + 1, it.vllm.ended + 1  # between two looks
            await it.look()
            assert not it.posted, number
        assert anyio.current_time() - began > idle_s
        ended = anyio.current_time()
        await it.until(lambda: it.posted)
        assert anyio.current_time() - ended > 0.6 * idle_s
        good = it.vllm.metrics
        it.vllm.metrics = lambda _: 503
        await it.until(lambda: len(it.posted) == 2)
        it.vllm.metrics = good
        known = anyio.current_time()
        await it.until(lambda: len(it.posted) == 4)
        assert anyio.current_time() - known > 0.9 * idle_s

    it = play(scenario, idle_s)
    reasons = [bool(cast(inp.EngineUse, one).reason) for one in it.posted]
    assert it.said() == [False, True, True, False] and reasons == [False, True, False, False]


def test_what_we_ask_ourselves_is_no_user_and_hides_none() -> None:
    async def scenario(it: Watched) -> None:
        await it.look()
        it.ask("one", ours=True)
        it.ask("three", ours=True, n=3)
        await it.until(lambda: it.vllm.running == 2)
        await it.look()
        assert it.said() == [False]
        it.ask("user", ours=False)
        await it.until(lambda: len(it.posted) == 2)
        it.under_way.cancel("user")
        await it.until(lambda: len(it.posted) == 3)
        it.vllm.hold.set()
        await it.until(lambda: it.vllm.running == 0)
        for number in range(10):
            it.ask(f"short {number}", ours=True)
            await it.look(1)
        await it.look()
        assert it.said() == [False, True, False]
        for number in range(10):  # a short one of a user among short ones of ours
            it.ask(f"short {number}", ours=True)
            it.ask(f"user {number}", ours=False)
            await it.until(lambda said=4 + 2 * number: len(it.posted) >= said)
            await it.until(lambda said=5 + 2 * number: len(it.posted) >= said)

    assert play(scenario).said() == [False, True] * 11 + [False]


def test_what_we_give_up_is_closed_at_once_and_no_user_while_the_engine_still_has_it() -> None:
    async def scenario(it: Watched) -> None:
        await it.look()
        it.ask("dream", ours=True, n=2)
        await it.until(lambda: it.vllm.running == 1)
        await it.look()
        it.under_way.cancel("dream")
        await it.until(lambda: it.server.left == 1)
        await it.look()
        assert it.vllm.running == it.vllm.begun == 0
        it.ask("user", ours=False)
        await it.until(lambda: len(it.posted) == 2)

    assert play(scenario).said() == [False, True]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"# nothing of ours\n", "no apollod_user_requests_begun_total; use one version of apollod"),
        (404, "answered 404"),
        (b"x" * (idle_watch.BYTES_MAX + 1), "longer than"),
        (None, "no whole answer within"),
    ],
    ids=["no such counts", "no metrics", "without end", "no answer"],
)
def test_where_nothing_is_known_it_is_told_once_with_the_reason_and_nobody_is_taken_to_be_idle(
    said: bytes | int | None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_watch, "READ_S", 0.5 if said is None else 5.0)  # a busy machine answers in less

    async def scenario(it: Watched) -> None:
        await it.look()
        good, failed = it.vllm.metrics, it.vllm.looks
        it.vllm.metrics = lambda _: said
        await it.until(lambda: len(it.posted) == 2)
        assert it.vllm.looks >= failed + idle_watch.FAILURES, "one failure says nothing yet"
        await it.look(3)
        it.vllm.metrics = good
        await it.until(lambda: len(it.posted) == 3)

    it = play(scenario)
    assert it.said() == [False, True, False]
    unknown = cast(inp.EngineUse, it.posted[1]).reason
    assert (
        unknown.startswith("the engine's counts of requests cannot be read: ") and why in unknown and KEY not in unknown
    )


def test_several_api_processes_are_asked_for_everything() -> None:
    async def scenario(it: Watched) -> None:
        text = it.vllm.metrics
        it.vllm.metrics = lambda path: b"" if path == SHORT else text(path)
        await it.look()
        it.ask("user", ours=False)
        await it.until(lambda: len(it.posted) == 2)

    it = play(scenario)
    assert it.said() == [False, True]
    assert [request.path for request in it.server.requests].count(SHORT) == 1


def test_an_engine_without_such_counts_is_asked_once_a_look() -> None:
    async def main() -> None:
        vllm = Vllm()
        vllm.metrics = lambda _: b""
        async with serving() as server, UserCounts(Endpoint(server.url, "", attempts=1)) as counts:
            server.otherwise = vllm.serve
            for _ in range(2):
                with pytest.raises(LlmNonsense):
                    await counts.read()
            assert [request.path for request in server.requests] == [SHORT, WHOLE, WHOLE]

    anyio.run(main)


def test_nobody_looks_where_nobody_wants_to_know_and_seldom_where_it_can_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_watch, "WIDE_S", 20.0)

    async def scenario(it: Watched) -> None:
        it.wanted = False
        await anyio.sleep(0.05)
        assert not it.vllm.looks
        it.wanted, it.closely = True, False
        await it.look(1)
        looks = it.vllm.looks
        await anyio.sleep(0.15)
        assert it.vllm.looks == looks
        it.closely = True
        await it.look(5)
        assert it.said() == [False]
        it.wanted = False
        await it.until(lambda: len(it.posted) == 2)
        looks = it.vllm.looks
        await anyio.sleep(0.05)
        assert it.vllm.looks == looks
        it.wanted = True
        await it.until(lambda: len(it.posted) == 3)

    assert play(scenario).said() == [False, True, False], "while nobody looks, nobody knows"


# --- who is counted -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base_url", "own"),
    [
        ("", True),
        ("http://127.0.0.1:8000/v1", True),
        ("http://localhost:8000/v1", True),
        ("http://[::1]:8000/v1", True),
        ("http://127.0.0.1:8001/v1", False),
        ("http://judge:8000/v1", False),
        ("https://127.0.0.1/v1", False),
    ],
)
def test_who_judges_or_dreams_at_our_own_engine_is_no_user_under_whatever_name(base_url: str, own: bool) -> None:
    overrides = ["model.path=/m"]
    if base_url:
        overrides += [f"endpoint.x.base_url={base_url}", "endpoint.x.model=m", "judge.endpoint=x", "dream.endpoint=x"]
    config = load_config(None, overrides, environ={})
    judge, dreamer = Judge(config, by_daemon=True), Dreamer(config)
    assert judge._endpoint.ours == own and not Judge(config)._endpoint.ours
    assert dreamer._imagination._connections.endpoint.ours == own
    assert dreamer._own._connections.endpoint.ours
