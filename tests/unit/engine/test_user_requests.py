"""Requests of users are counted, whatever they are; the daemon's own are not."""

import asyncio
from typing import Any

import pytest
from prometheus_client import generate_latest

from apollod.adapters.llm.engine_watch import UserRequests as Counts
from apollod.adapters.llm.engine_watch import read_user_requests
from apollod.engine.http.user_requests import Arrivals, UserRequests
from apollod.wire.engine_terms import OURS


def counts() -> Counts:
    """As they are on /metrics of this process."""
    return read_user_requests(generate_latest())


def seen(path: str, kind: str = "http", method: str = "POST", header: str = "", fails: bool = False) -> tuple[int, int]:
    """How many users more there are while the request is served, and when it is over."""
    at_first, while_served = counts(), []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        now = counts()
        while_served.append((now.begun - at_first.begun) - (now.ended - at_first.ended))
        if fails:
            raise asyncio.CancelledError

    headers = [(header.encode(), b"1")] if header else [(b"user-agent", b"apollod")]
    scope = {"type": kind, "path": path, "headers": headers, **({"method": method} if kind == "http" else {})}

    async def serve() -> None:
        await UserRequests(app, Arrivals())(scope, None, None)  # type: ignore[arg-type]

    try:
        asyncio.run(serve())
    except asyncio.CancelledError:
        assert fails
    ended = counts()
    assert ended.begun - at_first.begun == ended.ended - at_first.ended == while_served[0]
    return while_served[0], ended.ended - at_first.ended


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/audio/translations", "/invocations"])
def test_a_user_counts_while_served_and_afterwards(path: str) -> None:
    assert seen(path) == (1, 1)


def test_one_whose_client_left_has_ended_and_one_over_a_websocket_counts() -> None:
    assert seen("/v1/completions", fails=True) == (1, 1)
    assert seen("/v1/realtime", "websocket") == (1, 1)


@pytest.mark.parametrize("header", [OURS, OURS.title()])
def test_what_the_daemon_asks_does_not_count(header: str) -> None:
    assert seen("/v1/completions", header=header) == (0, 0)


@pytest.mark.parametrize("path", ["/train", "/feedback", "/lessons", "/checkpoint", "/tokenize", "/generate", "/score"])
def test_what_needs_no_engine_is_no_use_of_it(path: str) -> None:
    assert seen(path) == (0, 0)


def test_reading_is_no_use_of_it_and_nothing_else_of_a_server_is() -> None:
    assert seen("/v1/models", method="GET") == (0, 0)
    assert seen("", "lifespan") == (0, 0)


def test_who_waits_for_a_user_is_woken_by_the_next_one_and_by_nothing_of_ours() -> None:
    arrivals = Arrivals()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        pass

    async def ask(*headers: tuple[bytes, bytes]) -> None:
        scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": headers}
        await UserRequests(app, arrivals)(scope, None, None)  # type: ignore[arg-type]

    async def main() -> None:
        assert not await arrivals.next(0.01)
        await ask()  # before anybody waited
        waiting = [asyncio.create_task(arrivals.next(60.0)) for _ in range(2)]
        await asyncio.sleep(0)
        await ask((OURS.encode(), b"1"))
        await asyncio.sleep(0.01)
        assert not any(one.done() for one in waiting)
        await ask()
        assert await asyncio.wait_for(asyncio.gather(*waiting), 10.0) == [True, True]

    asyncio.run(main())
