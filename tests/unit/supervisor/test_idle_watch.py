"""Is it a user? By vLLM's counters, read over real HTTP from a server that counts as vLLM does."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
import pytest
from anyio.abc import SocketStream, TaskGroup
from hypothesis import given, settings
from hypothesis import strategies as st
from support.llm_server import LlmServer, Request, good_answer, send, serving

from apollod.adapters.llm.client import HttpLlm
from apollod.adapters.llm.endpoint import Endpoint
from apollod.adapters.llm.endpoint_use import Counts, EndpointUse
from apollod.adapters.llm.engine_counters import FINISHED, RUNNING, SHORT, WAITING, WHOLE, Counters, EngineCounters
from apollod.adapters.llm.request import Sampling
from apollod.core import inputs as inp
from apollod.errors import LlmNonsense
from apollod.supervisor.config import Config, load_config
from apollod.supervisor.dreaming import idle_watch
from apollod.supervisor.dreaming.dreamer import Dreamer
from apollod.supervisor.dreaming.idle_watch import IdleWatch, Sightings
from apollod.supervisor.executor.own_engine import own_endpoint
from apollod.supervisor.executor.under_way import UnderWay
from apollod.supervisor.judge import Judge

KEY = "sk-engine"
ABORT_S = 0.05
"""until a request whose client left is out of the gauges, as the step under way has to end first"""


# --- the sightings, which decide ------------------------------------------------------------------------------------


def sights(*looks: tuple[Counts, Counters, Counts]) -> list[bool]:
    """What one look a second shows."""
    seen = Sightings()
    return [seen.look(*look, float(second)) for second, look in enumerate(looks)]


def quiet(finished: int | None, **counts: int) -> tuple[Counts, Counters, Counts]:
    ours = Counts(**counts)
    return ours, Counters(0, 0, finished), ours


def test_whoever_runs_or_waits_and_is_not_ours() -> None:
    assert sights((Counts(), Counters(1, 0, 0), Counts())) == [True]
    assert sights((Counts(), Counters(0, 1, 0), Counts())) == [True]
    assert sights((Counts(asked=2), Counters(1, 1, 0), Counts(asked=2))) == [False]
    assert sights((Counts(asked=2), Counters(2, 1, 0), Counts(asked=2))) == [True]
    begun_meanwhile = (Counts(), Counters(1, 0, 0), Counts(asked=1))
    ended_meanwhile = (Counts(asked=1), Counters(1, 0, 0), Counts(asked=1, answered=1))
    assert sights(begun_meanwhile) == sights(ended_meanwhile) == [False]


def test_whoever_came_and_went_between_two_looks() -> None:
    assert sights(quiet(7), quiet(8), quiet(8), quiet(8)) == [False, False, True, False]
    ours = [quiet(7), (Counts(asked=1), Counters(0, 0, 8), Counts(asked=1)), quiet(8, asked=1, answered=1)]
    assert sights(*ours, quiet(8, asked=1, answered=1)) == [False] * 4, "its answer was on the way"
    assert sights(*ours, quiet(9, asked=1, answered=1), quiet(9, asked=1, answered=1))[-1]
    assert sights(quiet(None), quiet(None), quiet(3), quiet(3)) == [False] * 4


def test_an_engine_that_was_started_again_counts_from_nothing() -> None:
    assert sights(quiet(7), quiet(0), quiet(0), quiet(1), quiet(1)) == [False, False, False, False, True]


def test_one_of_ours_that_was_given_up_may_still_run_and_may_still_be_counted() -> None:
    lost = Counts(asked=1, lost=1)
    running = (Counts(asked=1), Counters(1, 0, 7), Counts(asked=1))
    lingers = (lost, Counters(1, 0, 7), lost)
    assert sights(running, lingers, lingers, quiet(8, asked=1, lost=1), quiet(8, asked=1, lost=1)) == [False] * 5
    gone = quiet(7, asked=1, lost=1)
    assert sights(running, lingers, gone, lingers)[-1], "ours was gone, this is another one"
    both = (lost, Counters(2, 0, 7), lost)
    assert sights((Counts(asked=1), Counters(2, 0, 7), Counts(asked=1)), both, lingers, gone) == [True] * 3 + [False]
    late = [quiet(7, asked=1, lost=1)] * int(idle_watch.LOST_S)
    after = [quiet(8, asked=1, lost=1)] * 3
    assert True in sights(running, lingers, *late, *after), "counted again after a while"


Event = tuple[str, int]
LIFE = st.lists(
    st.sampled_from(["own", "own", "admitted", "finished", "finished", "answered", "answered", "given-up", "look"]),
    max_size=60,
)


class Reality:
    """What happens to requests, at the engine and here, in any order that can be. A look takes so long that answers
    that were sent before the last one have come by the next."""

    def __init__(self) -> None:
        self.asked, self.engine, self.sent = list[int](), list[int](), list[int]()
        self.users: list[int] = []
        self.finished = self.number = 0
        self.own = EndpointUse()
        self.sightings = Sightings()
        self.now_s = 0.0

    def happen(self, what: str) -> bool | None:
        if what == "own":
            self.asked.append(self.number)
            self.number += self.own.began({})
        elif what == "admitted" and self.asked:
            self.engine.append(self.asked.pop(0))
        elif what == "finished" and self.engine:
            self.sent.append(self.engine.pop(0))
            self.finished += 1
        elif what == "answered" and self.sent:
            self.sent.pop(0)
            self.own.ended(1, 200)
        elif what == "given-up" and self.engine:
            self.own.ended(1, None)  # it goes on at the engine for as long as it likes
            self.lingering = self.engine.pop(0)
        elif what == "look":
            return self.look()
        return None

    def look(self) -> bool:
        self.now_s += 1.0
        counts = self.own.counts
        found = self.sightings.look(counts, Counters(len(self.engine) + len(self.users), 0, self.finished), counts,
                                    self.now_s)  # fmt: skip
        while self.sent:  # answers arrive before the next look
            self.happen("answered")
        return found


@settings(max_examples=200)
@given(life=LIFE)
def test_without_users_nothing_of_ours_is_ever_taken_for_one(life: list[str]) -> None:
    reality = Reality()
    assert not any(reality.happen(what) for what in [*life, "look", "look", "look"])


@settings(max_examples=200)
@given(life=LIFE)
def test_a_user_is_seen_whatever_we_do_and_so_is_one_who_has_gone_already(life: list[str]) -> None:
    reality = Reality()
    for what in [what for what in ["look", *life] if what != "given-up"]:
        reality.happen(what)
    while reality.asked:
        reality.happen("admitted")
    reality.users.append(1)
    assert any([reality.look(), reality.look()]), "an answer of ours that is on the way hides one for one look"
    reality.users.clear()
    reality.finished += 1
    assert [reality.look() for _ in range(4)] == [True, True, False, False], "no gap until it is known to be over"
    reality.finished += 1  # between two looks
    assert [reality.look() for _ in range(4)] == [False, True, False, False]


# --- the watch, over HTTP -------------------------------------------------------------------------------------------


class Vllm:
    """Counts requests as vLLM does; each is answered once `hold` is set."""

    def __init__(self) -> None:
        self.running = self.finished = self.looks = 0
        self.hold = anyio.Event()
        self.metrics: Callable[[str], bytes | int | None] = self._text
        """of a path: the text, or an HTTP status; None: it never answers"""

    def _text(self, path: str) -> bytes:
        values = {RUNNING: self.running, WAITING: 0, FINISHED: self.finished}
        return "".join(f'{name}{{engine="0"}} {value}.0\n' for name, value in values.items()).encode()

    async def serve(self, server: LlmServer, stream: SocketStream, request: Request) -> None:
        if request.path.startswith(WHOLE):
            await self._look(stream, request.path)
            return
        requests = request.body.get("n", 1)
        self.running += requests
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._answer, requests, stream, request, tasks)
                await stream.receive()  # raises when the client leaves
        except* anyio.EndOfStream:
            await anyio.sleep(ABORT_S)
            self.running -= requests
            raise anyio.EndOfStream from None

    async def _answer(self, requests: int, stream: SocketStream, request: Request, tasks: TaskGroup) -> None:
        await self.hold.wait()
        self.running -= requests
        self.finished += requests
        await send(stream, json.dumps(good_answer(request)).encode())
        tasks.cancel_scope.cancel()

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
        self.own = EndpointUse()
        self.posted: list[inp.Input] = []
        self.wanted = self.closely = True
        self.watch = IdleWatch(config, self.own, self.posted.append, lambda: self.wanted, lambda: self.closely)
        self.under_way = UnderWay(tasks)

    def ask(self, key: str, ours: bool, n: int = 1) -> None:
        async def work() -> None:
            endpoint = own_endpoint(self.config, self.own if ours else EndpointUse())
            async with HttpLlm(endpoint) as llm:
                await llm.complete("x", Sampling(n=n))

        running = self.vllm.running + n
        assert self.under_way.begin(key, work)
        self.tasks.start_soon(self.until, lambda: self.vllm.running == running)

    async def until(self, there: Callable[[], Any]) -> None:
        with anyio.fail_after(60):
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
        with anyio.fail_after(30):
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


def test_it_is_idle_only_after_idle_s_without_a_user_and_without_a_gap_in_what_is_known() -> None:
    idle_s = 0.3

    async def scenario(it: Watched) -> None:
        began = anyio.current_time()
        it.vllm.hold.set()
        for number in range(3):
            await anyio.sleep(0.15)
            it.vllm.finished += 1  # somebody was there between two looks
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
        await it.until(lambda: it.vllm.running == 4)
        await it.look()
        assert it.said() == [False]
        it.ask("user", ours=False)
        await it.until(lambda: len(it.posted) == 2)
        it.under_way.cancel("user")
        await it.until(lambda: len(it.posted) == 3)
        it.vllm.hold.set()
        await it.until(lambda: it.own.counts.answered == 4)
        for number in range(10):
            it.ask(f"short {number}", ours=True)
            await it.look(1)
        await it.until(lambda: it.own.counts.answered == 14)
        await it.look()

    it = play(scenario)
    assert it.said() == [False, True, False] and it.own.counts == Counts(14, 14)


def test_what_we_give_up_is_closed_at_once_and_no_user_while_the_engine_still_has_it() -> None:
    async def scenario(it: Watched) -> None:
        await it.look()
        it.ask("dream", ours=True, n=2)
        await it.until(lambda: it.vllm.running == 2)
        await it.look()
        it.under_way.cancel("dream")
        await it.until(lambda: it.server.left == 1)
        await it.look()
        assert it.vllm.running == 0 and it.own.counts == Counts(asked=2, lost=2)
        it.ask("user", ours=False)
        await it.until(lambda: len(it.posted) == 2)

    assert play(scenario).said() == [False, True]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"# nothing of vLLM\n", "no vllm:num_requests_running; take --disable-log-stats out"),
        (404, "answered 404"),
        (b"x" * (idle_watch.BYTES_MAX + 1), "longer than"),
        (None, "no whole answer within"),
    ],
    ids=["no such counters", "no metrics", "without end", "no answer"],
)
def test_where_nothing_is_known_it_is_told_once_with_the_reason_and_nobody_is_taken_to_be_idle(
    said: bytes | int | None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_watch, "READ_S", 0.05 if said is None else 5.0)

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
    assert unknown.startswith("what vLLM counts cannot be read: ") and why in unknown and KEY not in unknown


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


def test_an_engine_without_such_counters_is_asked_once_a_look() -> None:
    async def main() -> None:
        vllm = Vllm()
        vllm.metrics = lambda _: b""
        async with serving() as server, EngineCounters(Endpoint(server.url, "", attempts=1)) as counters:
            server.otherwise = vllm.serve
            for _ in range(2):
                with pytest.raises(LlmNonsense):
                    await counters.read()
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
def test_who_judges_or_dreams_at_our_own_engine_is_counted_under_whatever_name(base_url: str, own: bool) -> None:
    overrides = ["model.path=/m"]
    for section in ("judge", "dream") if base_url else ():
        overrides += [f"{section}.base_url={base_url}", f"{section}.model=m"]
    use = EndpointUse()
    config = load_config(None, overrides, environ={})
    judge, dreamer = Judge(config, use), Dreamer(config, use)
    assert (judge._endpoint.use is use) == own
    assert (dreamer._imagination._connections.endpoint.use is use) == own
    assert dreamer._own._connections.endpoint.use is use
