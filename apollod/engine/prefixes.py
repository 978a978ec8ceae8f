"""Forget the cached prefixes of older weights, also on a server that is never idle."""

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

    async def forget(self) -> None:
        """Drop all. vLLM refuses while a request holds a block (v1/core/block_pool.py): then it is tried again in the
        background, and after FORCE_AFTER_S running requests are made to give theirs back. Where that happens again and
        again it is done ever more rarely: requests that take longer to compute their KV again would never end."""
        if self._forgetting is not None:
            return
        if await self._engine.reset_prefix_cache():
            self._patience_s = FORCE_AFTER_S
        else:
            self._forgetting = asyncio.create_task(self._forget_later())

    async def _forget_later(self) -> None:
        deadline = time.monotonic() + self._patience_s
        try:
            while not await self._reset(force := time.monotonic() >= deadline):  # noqa: ASYNC110 - vLLM has no event for it
                await asyncio.sleep(RETRY_S)
            self._patience_s = min(FORCE_AFTER_MAX_S, 2 * self._patience_s) if force else FORCE_AFTER_S
        except Exception:
            logger.exception("apollod: cached prefixes of older weights could not be dropped")
        finally:
            self._forgetting = None

    async def _reset(self, force: bool) -> bool:
        """`force`: running requests are preempted and compute their KV again, which costs each a prefill and no token."""
        # vllm/v1/engine/async_llm.py; releases without the argument can only wait for an idle moment
        if force and "reset_running_requests" in inspect.signature(self._engine.reset_prefix_cache).parameters:
            return bool(await self._engine.reset_prefix_cache(reset_running_requests=True))
        return bool(await self._engine.reset_prefix_cache())
