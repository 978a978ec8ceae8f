"""Whether anybody but us uses the engine: vLLM's own counters, less what this daemon asks itself.

A look is one reading of vLLM's counters between two readings of ours (`EndpointUse`). Whatever of ours may have been in
the engine at that moment is taken to have been, so that nothing of ours is taken for a user's.
"""

from collections.abc import Callable

import anyio
import structlog

from apollod.adapters.llm.endpoint import Endpoint
from apollod.adapters.llm.endpoint_use import Counts, EndpointUse
from apollod.adapters.llm.engine_counters import Counters, EngineCounters
from apollod.core import inputs as inp
from apollod.errors import LlmError
from apollod.supervisor.config import Config

log = structlog.get_logger()

CLOSE_S = 0.25
"""from look to look while it matters at once"""
WIDE_S = 1.0
READ_S = 2.0
"""of one reading"""
BYTES_MAX = 4 << 20
"""of one reading: vLLM's whole /metrics has 50 kB an engine"""
FAILURES = 2
"""in a row, until nothing is known"""
LOST_S = 10.0
"""how long one of our requests that got no answer may still be counted as finished"""


class Sightings:
    """What looks show, one after another."""

    def __init__(self) -> None:
        self._users = False
        self._lost: int | None = None
        """of our requests, at the last look"""
        self._lingering = 0
        """of these as many as may still be in the engine"""
        self._finished: int | None = None
        """by vLLM's count at the last look"""
        self._of_users: int | None = None
        """requests of others that have ended: no more than that at the time from which on they are looked for"""
        self._uncertain_until = 0.0

    def look(self, before: Counts, seen: Counters, after: Counts, now_s: float) -> bool:
        """Do others use the engine? `before`, `after`: our counts around what was `seen`. `now_s`: of a monotonic
        clock."""
        newly_lost = before.lost - (before.lost if self._lost is None else self._lost)
        self._lost = before.lost
        there = self._any_there(before, seen, after, newly_lost)
        ended = self._any_ended(before, seen, newly_lost, now_s)
        self._users = there or ended
        return self._users

    def _any_there(self, before: Counts, seen: Counters, after: Counts, newly_lost: int) -> bool:
        """More requests than can be ours. While there were others, what lingers is not taken for ours: better to wait
        for one step of the engine too long than to overlook somebody."""
        there = seen.running + seen.waiting
        ours = before.in_flight + after.asked - before.asked
        self._lingering = min(self._lingering + newly_lost, there)
        return there > ours + (0 if self._users else self._lingering)

    def _any_ended(self, before: Counts, seen: Counters, newly_lost: int, now_s: float) -> bool:
        """Did requests end that were not ours? For those that came and went between two looks.

        The count of the last look is compared with our answers of this one: what vLLM had finished of ours then has
        been answered since. Where there were others the next look is waited for, lest one who ends is told of twice.
        """
        last, self._finished = self._finished, seen.finished
        if seen.finished is None:
            return False
        if newly_lost:
            self._uncertain_until = now_s + LOST_S
        at_most = seen.finished - before.answered
        if last is None or self._of_users is None or now_s < self._uncertain_until:
            self._of_users = at_most
            return False
        by_last_look = last - before.answered
        found, perhaps = by_last_look > self._of_users, at_most > self._of_users
        self._of_users = by_last_look if found else min(self._of_users, at_most)
        return found or (self._users and perhaps)


class IdleWatch:
    """Tells the loop when others begin to use the engine, and when they did not for `[dream] idle_s`. Asks vLLM only
    while that is `wanted`, more often while it matters at once (`closely`)."""

    def __init__(
        self,
        config: Config,
        own: EndpointUse,
        post: Callable[[inp.Input], None],
        wanted: Callable[[], bool],
        closely: Callable[[], bool],
    ) -> None:
        """`own`: counts what we ask of our engine."""
        self._endpoint = Endpoint(
            config.api_url, "", config.engine.api_key, attempts=1, try_s=READ_S, total_s=READ_S,
            answer_bytes_max=BYTES_MAX,
        )  # fmt: skip
        self._own, self._post, self._wanted, self._closely = own, post, wanted, closely
        self._idle_s = config.dream.idle_s
        self._told = inp.EngineUse(True)
        """the loop's belief while nobody looks"""
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._sightings = Sightings()
        self._failures = 0
        self._used_s: float | None = None
        """when somebody was seen last, or it was not known, or the watch began"""
        self._due_s = 0.0

    async def run(self) -> None:
        """Watch, until cancelled."""
        async with EngineCounters(self._endpoint) as counters:
            while True:
                if not self._wanted():
                    self._begin_anew()
                    self._tell(inp.EngineUse(True))
                elif self._closely() or anyio.current_time() >= self._due_s:
                    self._due_s = anyio.current_time() + WIDE_S
                    await self._look(counters)
                await anyio.sleep(CLOSE_S)

    async def _look(self, counters: EngineCounters) -> None:
        before = self._own.counts
        try:
            seen = await counters.read()
        except LlmError as error:
            self._failed(error)
            return
        self._failures = 0
        now_s = anyio.current_time()
        users = self._sightings.look(before, seen, self._own.counts, now_s)
        if users or self._used_s is None:
            self._used_s = now_s
        if users or now_s - self._used_s >= self._idle_s:
            self._tell(inp.EngineUse(users))
        elif self._told.reason:
            self._tell(inp.EngineUse(True))

    def _failed(self, error: LlmError) -> None:
        self._failures += 1
        if self._failures >= FAILURES:
            self._sightings, self._used_s = Sightings(), None
            self._tell(inp.EngineUse(True, f"what vLLM counts cannot be read: {error.line()}"))

    def _tell(self, use: inp.EngineUse) -> None:
        """Once for each change; another reason why nothing is known is none."""
        told = self._told
        if (use.users, bool(use.reason)) == (told.users, bool(told.reason)):
            return
        self._told = use
        if use.reason:
            log.warning("engine.use_unknown", reason=use.reason)
        elif told.reason:
            log.info("engine.use_known")
        self._post(use)
