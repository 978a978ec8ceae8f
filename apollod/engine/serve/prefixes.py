"""Drops the cached prefixes of older weights, also on a server that is never idle.

Requests that carry a salt (`versions`) do not find them once new weights are announced. Dropping them also protects
requests that cannot carry one, and frees memory.
"""

import asyncio
import inspect
import logging
import time
from typing import Any

RETRY_S = 1.0
FORCE_AFTER_S = 5.0
FORCE_AFTER_MAX_S = 60.0
logger = logging.getLogger("vllm.apollod")


class Prefixes:
    """The prefix cache of one engine (vLLM's EngineClient)."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._forgetting: asyncio.Task[None] | None = None
        self._patience_s = FORCE_AFTER_S
        self._asked_again = False

    async def forget(self, at_once: bool = False) -> None:
        """Drop all prefixes. vLLM refuses while a request holds a block (v1/core/block_pool.py): then it is retried in
        the background, and after FORCE_AFTER_S running requests are preempted; with `at_once` immediately. Repeated
        forcing gets ever rarer: requests that take longer to recompute their KV would never end."""
        self._asked_again = True
        if at_once and await self._forced():
            return
        if self._forgetting is not None:
            return
        if await self._reset(force=False):
            self._patience_s = FORCE_AFTER_S
        else:
            self._forgetting = asyncio.create_task(self._forget_later())

    async def _forced(self) -> bool:
        """Try to drop by force. vLLM raises if blocks wait for a transfer from elsewhere
        (v1/core/sched/scheduler.py)."""
        try:
            return await self._reset(force=True)
        except Exception:
            logger.exception("apollod: running requests could not be made to give their blocks back; it is tried later")
            return False

    async def _forget_later(self) -> None:
        try:
            while await self._was_asked_again():
                pass
        except Exception:
            logger.exception("apollod: cached prefixes of older weights could not be dropped")
        finally:
            self._forgetting = None

    async def _was_asked_again(self) -> bool:
        """Try until all is dropped. True if another request to drop came meanwhile, possibly for newer weights."""
        deadline = time.monotonic() + self._patience_s
        while True:
            self._asked_again = False
            if await self._reset(force := time.monotonic() >= deadline):
                self._patience_s = min(FORCE_AFTER_MAX_S, 2 * self._patience_s) if force else FORCE_AFTER_S
                return self._asked_again
            await asyncio.sleep(RETRY_S)

    async def _reset(self, force: bool) -> bool:
        """Ask vLLM to drop. `force`: running requests are preempted and recompute their KV, which costs each a prefill
        and no token."""
        # vllm/v1/engine/async_llm.py; releases without the argument can only wait for an idle moment
        if force and "reset_running_requests" in inspect.signature(self._engine.reset_prefix_cache).parameters:
            return bool(await self._engine.reset_prefix_cache(reset_running_requests=True))
        return bool(await self._engine.reset_prefix_cache())
