"""The API process's connection to the supervisor, which announces new weights and orders pauses, resumptions and
comparisons."""

import asyncio
import logging
import os
import threading
import time
from typing import Any

import msgspec
import vllm

from apollod.adapters.ipc.link import Link
from apollod.engine.serve.fence import Fence
from apollod.engine.serve.prefixes import Prefixes
from apollod.engine.serve.versions import Served
from apollod.errors import LinkClosed
from apollod.explain import line_of
from apollod.wire.messages import Compare, Compared, Hello, Pause, Paused, Refresh, Refreshed, Resume, Resumed

logger = logging.getLogger("vllm.apollod")

AT_ONCE = 8  # tensors compared in a row before requests get a turn


class Refresher:
    """Serves messages one after another, as long as the API server lives. If the supervisor dies, any pause ends."""

    def __init__(self, engine: Any, socket_path: str, served: Served) -> None:
        """`engine` is vLLM's EngineClient. Raises DaemonUnreachable."""
        self._engine = engine
        self._served = served
        self._derives = True
        """false once the worker reports nothing to derive, which is fixed when the weights are loaded"""
        self._prefixes = Prefixes(engine)
        self._fence = Fence(engine, lambda seconds: self._link.send(Resumed(seconds, True, self._served.active)))
        self._loop = asyncio.get_running_loop()
        self._link = Link.connect(socket_path)
        self._link.send(Hello("engine-api", os.getpid(), versions={"vllm": vllm.__version__}))
        threading.Thread(target=self._listen, name="apollod-refresh", daemon=True).start()

    def _listen(self) -> None:
        """Thread: blocks on the link, and awaits the engine on the server's loop."""
        try:
            while True:
                answer = self._on_loop(self._answer(self._link.receive()))
                if answer is not None:
                    self._link.send(answer)
        except LinkClosed as closed:
            logger.warning("apollod: %s; serving goes on, learning does not reach this process", closed.line())
            self._on_loop(self._fence.resume())

    def _on_loop(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _answer(self, message: Any) -> msgspec.Struct | None:
        match message:
            case Refresh():
                return await self._refresh(message)
            case Pause(clear=clear, at_most_s=at_most_s):
                return await self._pause(clear, at_most_s)
            case Resume():
                return Resumed(await self._fence.resume(), active=self._served.active)
            case Compare(step=step, digests=digests):
                return await self._compare(step, digests)
        return None

    async def _refresh(self, message: Refresh) -> Refreshed:
        started, counts, error = time.monotonic(), [0], ""
        try:
            if self._derives:
                counts = await self._engine.collective_rpc("apollod_rederive")
                self._derives = sum(counts) > 0
            if hasattr(self._engine, "update_weight_version"):  # vLLM 0.32 (v1/engine/async_llm.py); 0.26 has no label
                await self._engine.update_weight_version(str(message.version))
            taken_back = message.version < (self._served.version or 0)
            self._served.announce(message.version, salted=message.forget != "keep")
            if message.forget == "reset":
                await self._prefixes.forget(at_once=taken_back)
        except Exception as failure:
            logger.exception("apollod: refresh to version %d failed", message.version)
            error = line_of(failure)
            if message.forget != "keep":
                self._served.turn()  # the served weights may differ from those of cached prefixes
        return Refreshed(message.version, sum(counts), time.monotonic() - started, error)

    async def _pause(self, clear: bool, at_most_s: float) -> Paused:
        try:
            return Paused(await self._fence.pause(clear, at_most_s))
        except Exception as failure:
            logger.exception("apollod: the engine could not be paused")
            return Paused(0.0, line_of(failure))

    async def _compare(self, step: int, digests: dict[str, str]) -> Compared:
        """Compare a few tensors at a time, so that requests are computed between."""
        try:
            names = (await self._engine.collective_rpc("apollod_compared"))[0]
            differing: dict[str, str] = {}
            for first in range(0, len(names), AT_ONCE):
                part = names[first : first + AT_ONCE]
                given = {name: digests[name] for name in part if name in digests}
                for found in await self._engine.collective_rpc("apollod_differing", args=(part, given)):
                    differing |= found
            return Compared(step, differing)
        except Exception as failure:
            logger.exception("apollod: weights could not be compared")
            return Compared(step, error=line_of(failure))
