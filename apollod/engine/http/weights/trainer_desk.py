"""Holds what both dialects work on: the update under way, and generation, which callers may pause and abort for it."""

import asyncio
import time
from argparse import Namespace
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from apollod.engine.http.generate import completed
from apollod.engine.http.versions import HEADER, Served
from apollod.engine.http.weights.control_terms import ControlTerms
from apollod.engine.http.weights.served_model import ServedModel, served_model
from apollod.engine.http.weights.update_calls import Ask, Updates
from apollod.engine.refresh import Mode, Refresher, abort_all

HEALTH_S = 20.0
FLUSH_POLL_S = 0.1
BY_CHARACTERS_MAX = 200

Handler = Callable[[Request], Awaitable[Response]]
Table = list[tuple[str, str, Handler]]
"""method, path and handler of each route"""


class Desk:
    """One for the API process. `attach` comes before the first request."""

    def __init__(self, terms: ControlTerms, ask: Ask, served: Served) -> None:
        self.terms = terms
        self.updates = Updates(ask, served.names)
        self.model = ServedModel()
        self._served = served
        self._engine: Any = None
        self._refresher: Any = None
        self._tasks: set[asyncio.Task[None]] = set()

    def attach(self, engine: Any, refresher: Refresher, args: Namespace) -> None:
        """`engine` is vLLM's EngineClient."""
        self._engine, self._refresher = engine, refresher
        self.model = served_model(engine, args)
        refresher.fence.caller_expired = self._expired
        self._begin(self.updates.learn())

    @property
    def paused(self) -> bool:
        """True while generation is paused by a caller."""
        return bool(self._refresher.fence.held_by_caller)

    @property
    def active(self) -> int:
        """Number of running generations."""
        return self._served.active

    async def pause(self, mode: Mode, clear: bool) -> None:
        """Pause generation, for at most the time of the terms."""
        await self.updates.begin_pause()
        await self._refresher.fence.pause_for_caller(mode, clear, self.terms.pause_s)

    async def resume(self) -> None:
        """End the pause; without one, nothing."""
        await self._refresher.fence.resume_for_caller()

    async def abort(self, requests: list[str] | None) -> int:
        """End these running requests, or all; returns their number."""
        if requests is None:
            return await abort_all(self._engine)
        await self._engine.abort(requests)
        return len(requests)

    async def forget(self, force: bool = False, within_s: float = 0.0) -> bool:
        """Drop the cached prefixes; false if running requests use some after `within_s` seconds."""
        deadline = time.monotonic() + within_s
        while not await self._refresher.prefixes.dropped(force):
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(FLUSH_POLL_S)
        return True

    async def generates(self, request: Request) -> bool:
        """True if the engine gives a token. Paused, it is not asked."""
        if self._refresher.fence.held:
            return True
        headers = [each for each in request.scope["headers"] if each[0] != b"content-type"]
        headers.append((b"content-type", b"application/json"))
        asking = Request({**request.scope, "method": "POST", "headers": headers}, request.receive)
        body = {"prompt": [0], "max_tokens": 1, "temperature": 0.0}
        try:
            return (await asyncio.wait_for(completed(asking, body, by_priority=False), HEALTH_S))[0] == 200
        except TimeoutError:
            return False

    def labelled(self, response: Response) -> Response:
        """The answer with the version of the served weights."""
        if self._served.version is not None:
            response.headers[HEADER.decode()] = str(self._served.version)
        return response

    def _expired(self, seconds: float) -> None:
        self._begin(self.updates.end_pause(f"the pause ended by itself after {seconds:.0f} s"))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def caller_of(request: Request) -> str:
    """The caller, for people."""
    host = request.client.host if request.client else "unknown"
    agent = "".join(each for each in request.headers.get("user-agent", "") if each.isprintable())
    return f"{host} {agent}".strip()[:BY_CHARACTERS_MAX]
