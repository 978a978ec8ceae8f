"""Watches for users of the engine, by its counts of their requests, begun and ended."""

from collections.abc import Callable

import anyio
import structlog

from apollod.adapters.llm.endpoint import Endpoint
from apollod.adapters.llm.engine_watch import UserCounts, UserRequests
from apollod.core import inputs as inp
from apollod.errors import LlmError
from apollod.supervisor.config import Config

log = structlog.get_logger()

CLOSE_S = 0.25
"""time between two looks while a change matters at once"""
WIDE_S = 1.0
READ_S = 2.0
"""time limit of one reading"""
BYTES_MAX = 4 << 20
"""most bytes of one reading: vLLM's whole /metrics has 50 kB an engine"""
FAILURES = 2
"""failures in a row after which the use counts as not known"""


def users_seen(before: UserRequests | None, now: UserRequests) -> bool:
    """True if a user's request is running, or one began since the look `before` (None: first look). A request that
    began and ended between two looks shows in the count of begun ones, which a restarted engine counts from 0."""
    return now.begun > now.ended or (before is not None and now.begun > before.begun)


class IdleWatch:
    """Tells the loop when users begin to use the engine, and when they have not for `[dream] idle_s`. Asks it only
    while that is `wanted`, and more often while a change matters at once (`closely`)."""

    def __init__(
        self, config: Config, post: Callable[[inp.Input], None], wanted: Callable[[], bool], closely: Callable[[], bool]
    ) -> None:
        self._endpoint = Endpoint(
            config.api_url, "", config.engine.api_key, attempts=1, try_s=READ_S, total_s=READ_S,
            answer_bytes_max=BYTES_MAX,
        )  # fmt: skip
        self._post, self._wanted, self._closely = post, wanted, closely
        self._idle_s = config.dream.idle_s
        self._told = inp.EngineUse(True)
        """the use that the loop assumes without a watch"""
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._seen: UserRequests | None = None
        """counts at the last look"""
        self._failures = 0
        self._used_s: float | None = None
        """time of the last use, of the last failure to know, or of the beginning"""
        self._due_s = 0.0

    async def run(self) -> None:
        """Watch, until cancelled."""
        async with UserCounts(self._endpoint) as counts:
            while True:
                if not self._wanted():
                    self._begin_anew()
                    self._tell(inp.EngineUse(True))
                elif self._closely() or anyio.current_time() >= self._due_s:
                    self._due_s = anyio.current_time() + WIDE_S
                    await self._look(counts)
                await self._pause(counts)

    async def _pause(self, counts: UserCounts) -> None:
        """Wait until the next look; while it matters, report a user's request at once."""
        until_s = anyio.current_time() + CLOSE_S
        if self._wanted() and self._closely() and not self._told.users:
            try:
                if await counts.next_user(CLOSE_S):
                    self._used_s = anyio.current_time()
                    self._tell(inp.EngineUse(True))
            except LlmError:
                pass  # the looks report the problem
        await anyio.sleep(max(0.0, until_s - anyio.current_time()))

    async def _look(self, counts: UserCounts) -> None:
        try:
            seen = await counts.read()
        except LlmError as error:
            self._failed(error)
            return
        self._failures = 0
        now_s = anyio.current_time()
        users = users_seen(self._seen, seen)
        self._seen = seen
        if users or self._used_s is None:
            self._used_s = now_s
        if users or now_s - self._used_s >= self._idle_s:
            self._tell(inp.EngineUse(users))
        elif self._told.reason:
            self._tell(inp.EngineUse(True))

    def _failed(self, error: LlmError) -> None:
        self._failures += 1
        if self._failures >= FAILURES:
            self._seen, self._used_s = None, None
            self._tell(inp.EngineUse(True, f"the engine's counts of requests cannot be read: {error.line()}"))

    def _tell(self, use: inp.EngineUse) -> None:
        """Report each change once; another reason for not knowing is not a change."""
        told = self._told
        if (use.users, bool(use.reason)) == (told.users, bool(told.reason)):
            return
        self._told = use
        if use.reason:
            log.warning("engine.use_unknown", reason=use.reason)
        elif told.reason:
            log.info("engine.use_known")
        self._post(use)
