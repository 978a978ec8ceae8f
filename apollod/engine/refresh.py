"""The API process's connection to the supervisor: after a step, bring the engine up to date with the shared memory."""

import asyncio
import logging
import os
import threading
import time
from typing import Any

import vllm

from apollod.adapters.link import Link
from apollod.errors import LinkClosed
from apollod.wire.messages import Hello, Refresh, Refreshed

RETRY_S = 1.0
logger = logging.getLogger("vllm.apollod")


class Refresher:
    """Serves `Refresh` messages one after another. Lives as long as the API server; the supervisor's death ends both."""

    def __init__(self, engine: Any, socket_path: str) -> None:
        """`engine` is vLLM's EngineClient. Raises DaemonUnreachable."""
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._forgetting: asyncio.Task[None] | None = None
        self._link = Link.connect(socket_path)
        self._link.send(Hello("engine-api", os.getpid(), versions={"vllm": vllm.__version__}))
        threading.Thread(target=self._listen, name="apollod-refresh", daemon=True).start()

    def _listen(self) -> None:
        """Thread: the link blocks, the engine is awaited on the server's loop."""
        try:
            while True:
                message = self._link.receive()
                if isinstance(message, Refresh):
                    self._link.send(asyncio.run_coroutine_threadsafe(self._refresh(message.version), self._loop).result())
        except LinkClosed as closed:
            logger.warning("apollod: %s; serving goes on, learning does not reach this process", closed.line())

    async def _refresh(self, version: int) -> Refreshed:
        started, counts, error = time.monotonic(), [0], ""
        try:
            counts = await self._engine.collective_rpc("apollod_rederive")
            if hasattr(self._engine, "update_weight_version"):  # vLLM 0.32; 0.26 has no label
                await self._engine.update_weight_version(str(version))
            await self._forget_prefixes()
        except Exception as failure:
            logger.exception("apollod: refresh to version %d failed", version)
            error = f"{type(failure).__name__}: {failure}"
        return Refreshed(version, sum(counts), time.monotonic() - started, error)

    async def _forget_prefixes(self) -> None:
        """Drop cached prefixes of the old weights. vLLM refuses while a request holds a block (v1/core/block_pool.py):
        then it is tried again in the background, so that a busy server does not keep them for ever."""
        if self._forgetting is None and not await self._engine.reset_prefix_cache():
            self._forgetting = asyncio.create_task(self._forget_later())

    async def _forget_later(self) -> None:
        while not await self._engine.reset_prefix_cache():  # noqa: ASYNC110 - vLLM has no event for it
            await asyncio.sleep(RETRY_S)
        self._forgetting = None
