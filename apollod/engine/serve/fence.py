"""vLLM's pause around a write of the trainer, which ends by itself after a time limit.

Mode `keep`: running requests stop between two model steps and go on afterwards; new ones wait. With `clear` their KV
and all cached prefixes are dropped (v1/engine/core.py, `_reset_caches`) and computed again with the new weights.
"""

import asyncio
import contextlib
import inspect
import logging
import time
from collections.abc import Callable
from typing import Any

from apollod.errors import ApolloError

PAUSE_S = 30.0  # for the running model step; a long prefill takes seconds
logger = logging.getLogger("vllm.apollod")


class Fence:
    """Pauses and resumes one engine. `expired(seconds)` is called on the event loop when a pause lasted too long."""

    def __init__(self, engine: Any, expired: Callable[[float], None]) -> None:
        """`engine` is vLLM's EngineClient."""
        self._engine = engine
        self._expired = expired
        self._since: float | None = None
        self._limit: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None

    async def pause(self, clear: bool, at_most_s: float) -> float:
        """Wait until the engine is idle; returns the seconds that took. If vLLM raises, so does this, unpaused."""
        started = time.monotonic()
        if "mode" not in inspect.signature(self._engine.pause_generation).parameters:  # vllm/v1/engine/async_llm.py
            raise ApolloError(
                "this vLLM has no pause with mode keep", 'use 0.26 or newer, or [trainer] publish = "hogwild"'
            )
        try:
            await asyncio.wait_for(self._engine.pause_generation(mode="keep", clear_cache=clear), PAUSE_S)
            # vLLM 0.32 waits for the device itself (v1/engine/core.py, `_finish_pause`), 0.26 does not.
            await self._engine.collective_rpc("apollod_synchronize")
        except BaseException:
            with contextlib.suppress(Exception):
                await self._engine.resume_generation()
            raise
        self._since = started
        self._limit = asyncio.get_running_loop().call_later(at_most_s, self._end)
        return time.monotonic() - started

    async def resume(self) -> float:
        """Let requests go on; returns the seconds that they waited, 0 if they did not."""
        since, self._since = self._since, None
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
        if since is None:
            return 0.0
        await self._engine.resume_generation()
        return time.monotonic() - since

    def _end(self) -> None:
        self._ending = asyncio.create_task(self._end_and_tell())

    async def _end_and_tell(self) -> None:
        if self._since is None:
            return
        seconds = await self.resume()
        logger.warning("apollod: requests waited %.1f s for a write and go on without its end", seconds)
        self._expired(seconds)
