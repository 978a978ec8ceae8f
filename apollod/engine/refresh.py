"""Changes the engine while requests run: the API process's connection to the supervisor, which announces new weights
and orders pauses, resumptions and comparisons. The supervisor decides when and why; its orders are carried out here.
"""

import asyncio
import contextlib
import inspect
import logging
import os
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Literal

import msgspec

from apollod.adapters.ipc.channel import Link
from apollod.engine.http.versions import Served
from apollod.errors import ApolloError, LinkClosed
from apollod.explain import line_of
from apollod.wire import messages as msg

logger = logging.getLogger("vllm.apollod")

AT_ONCE = 8  # tensors compared in a row before requests get a turn
PAUSE_S = 30.0  # for the running model step; a long prefill takes seconds
RETRY_S = 1.0
FORCE_AFTER_S = 5.0
FORCE_AFTER_MAX_S = 60.0
WRITE, CALLER = "write", "caller's pause"
"""reasons for which generation is held"""

Mode = Literal["abort", "wait", "keep"]
"""what becomes of running requests in a pause"""


class Refresher:
    """Serves messages one after another, as long as the API server lives. If the supervisor dies, a write's pause ends.

    `fence` and `prefixes` are also for the routes by which outside trainers write (`http.weights`)."""

    def __init__(self, engine: Any, socket_path: str, served: Served) -> None:
        """`engine` is vLLM's EngineClient. Raises DaemonUnreachable."""
        self._engine = engine
        self._served = served
        self._derives = True
        """false once the worker reports nothing to derive, which is fixed when the weights are loaded"""
        self.prefixes = Prefixes(engine)
        self.fence = Fence(
            engine, lambda seconds: self._link.send(msg.EngineResumeReport(seconds, True, self._served.active))
        )
        self._loop = asyncio.get_running_loop()
        self._link = Link.connect(socket_path)
        import vllm  # takes seconds, and who only imports this module's names may have none (a gateway)

        self._link.send(msg.Hello("engine-api", os.getpid(), versions={"vllm": vllm.__version__}))
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
            self._on_loop(self.fence.resume())

    def _on_loop(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _answer(self, message: Any) -> msgspec.Struct | None:
        match message:
            case msg.RefreshEngine():
                return await self._refresh(message)
            case msg.Pause(clear=clear, at_most_s=at_most_s):
                return await self._pause(clear, at_most_s)
            case msg.ResumeEngine():
                return msg.EngineResumeReport(await self.fence.resume(), active=self._served.active)
            case msg.CompareWeights(step=step, digests=digests):
                return await self._compare(step, digests)
        return None

    async def _refresh(self, message: msg.RefreshEngine) -> msg.Refreshed:
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
                await self.prefixes.forget(at_once=taken_back)
        except Exception as failure:
            logger.exception("apollod: refresh to version %d failed", message.version)
            error = line_of(failure)
            if message.forget != "keep":
                self._served.turn()  # the served weights may differ from those of cached prefixes
        return msg.Refreshed(message.version, sum(counts), time.monotonic() - started, error)

    async def _pause(self, clear: bool, at_most_s: float) -> msg.Paused:
        try:
            return msg.Paused(await self.fence.pause(clear, at_most_s))
        except Exception as failure:
            logger.exception("apollod: the engine could not be paused")
            return msg.Paused(0.0, line_of(failure))

    async def _compare(self, step: int, digests: dict[str, str]) -> msg.Compared:
        """Compare a few tensors at a time, so that requests are computed between."""
        try:
            names = (await self._engine.collective_rpc("apollod_compared"))[0]
            differing: dict[str, str] = {}
            for first in range(0, len(names), AT_ONCE):
                part = names[first : first + AT_ONCE]
                given = {name: digests[name] for name in part if name in digests}
                for found in await self._engine.collective_rpc("apollod_differing", args=(part, given)):
                    differing |= found
            return msg.Compared(step, differing)
        except Exception as failure:
            logger.exception("apollod: weights could not be compared")
            return msg.Compared(step, error=line_of(failure))


class _Hold:
    """One reason for which generation is held."""

    def __init__(self, mode: str, since: float) -> None:
        self.mode = mode
        self.since = since
        self.limit: asyncio.TimerHandle | None = None


class Fence:
    """vLLM's pause, for two reasons that are counted apart: a write of the trainer, and a caller of the routes for
    weights. Neither ends the other's; generation goes on when both have ended. Each ends by itself after its time
    limit: then `expired(seconds)` is called on the event loop for a write, `caller_expired(seconds)` for a caller.

    Mode `keep`: running requests stop between two model steps and go on afterwards; new ones wait. With `clear` their
    KV and all cached prefixes are dropped (v1/engine/core.py, `_reset_caches`) and computed again with the new weights.
    `abort` ends running requests, `wait` lets them end; new ones wait.
    """

    def __init__(self, engine: Any, expired: Callable[[float], None]) -> None:
        """`engine` is vLLM's EngineClient."""
        self._engine = engine
        self._expired = expired
        self.caller_expired: Callable[[float], None] = lambda seconds: None
        self._holds: dict[str, _Hold] = {}
        self._no_write = asyncio.Event()
        self._no_write.set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def held_by_caller(self) -> bool:
        """True while a caller's pause is in force."""
        return CALLER in self._holds

    @property
    def held(self) -> bool:
        """True while generation is held, for whichever reason."""
        return bool(self._holds)

    async def pause(self, clear: bool, at_most_s: float) -> float:
        """Wait until the engine is idle, for a write; returns the seconds that took. If vLLM raises, so does this,
        unpaused."""
        self._no_write.clear()
        return await self._pause(WRITE, "keep", clear, at_most_s, PAUSE_S)

    async def pause_for_caller(self, mode: Mode, clear: bool, at_most_s: float) -> float:
        """The same for a caller. It begins after the end of a write's pause: `wait` would let the requests run on that
        are held for the write."""
        await self._no_write.wait()
        return await self._pause(CALLER, mode, clear, at_most_s, at_most_s if mode == "wait" else PAUSE_S)

    async def resume(self) -> float:
        """End the write's pause; returns the seconds that it took, 0 if there was none."""
        return await self._end(WRITE)

    async def resume_for_caller(self) -> float:
        """End the caller's pause; returns the seconds that it took, 0 if there was none."""
        return await self._end(CALLER)

    async def _pause(self, by: str, mode: str, clear: bool, at_most_s: float, patience_s: float) -> float:
        started = time.monotonic()
        before, hold = self._holds.get(by), _Hold(mode, started)
        self._holds[by] = hold
        if before and before.limit:
            before.limit.cancel()
        try:
            if "mode" not in inspect.signature(self._engine.pause_generation).parameters:  # vllm/v1/engine/async_llm.py
                raise ApolloError(
                    "this vLLM has no pause with mode keep", 'use 0.26 or newer, or [trainer] publish = "hogwild"'
                )
            await asyncio.wait_for(self._engine.pause_generation(mode=mode, clear_cache=clear), patience_s)
            # vLLM 0.32 waits for the device itself (v1/engine/core.py, `_finish_pause`), 0.26 does not.
            await self._engine.collective_rpc("apollod_synchronize")
        except BaseException:
            if self._holds.get(by) is hold:
                with contextlib.suppress(Exception):
                    await self._end(by)
            raise
        if self._holds.get(by) is hold:  # else it was ended meanwhile
            hold.limit = asyncio.get_running_loop().call_later(at_most_s, self._expire, by, hold)
        return time.monotonic() - started

    async def _end(self, by: str) -> float:
        hold = self._holds.pop(by, None)
        if by == WRITE:
            self._no_write.set()
        if hold is None:
            return 0.0
        if hold.limit is not None:
            hold.limit.cancel()
        left = next(iter(self._holds.values()), None)
        if left is None:
            await self._engine.resume_generation()
        elif left.mode == "wait":  # what the write's pause stopped goes on to its end
            self._begin(self._wait_again())
        return time.monotonic() - hold.since

    async def _wait_again(self) -> None:
        try:
            await self._engine.pause_generation(mode="wait", clear_cache=False)
        except Exception:
            logger.exception("apollod: running requests wait for the end of a pause")

    def _expire(self, by: str, hold: _Hold) -> None:
        if self._holds.get(by) is hold:
            self._begin(self._end_and_tell(by))

    async def _end_and_tell(self, by: str) -> None:
        if by not in self._holds:
            return
        seconds = await self._end(by)
        logger.warning("apollod: requests waited %.1f s for a %s and go on without its end", seconds, by)
        (self._expired if by == WRITE else self.caller_expired)(seconds)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class Prefixes:
    """Drops the cached prefixes of older weights, also on a server that is never idle.

    Requests that carry a salt (`http.versions`) do not find them once new weights are announced. Dropping them also
    protects requests that cannot carry one, and frees memory.
    """

    def __init__(self, engine: Any) -> None:
        """`engine` is vLLM's EngineClient."""
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

    async def dropped(self, force: bool) -> bool:
        """Try once to drop all prefixes, with `force` also those of running requests; false if some are in use."""
        return await self._forced() if force else await self._reset(force=False)

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


async def abort_all(engine: Any) -> int:
    """End all running requests, whose answers have what was generated so far; returns their number. `engine` is vLLM's
    EngineClient."""
    known = getattr(engine, "output_processor", None)  # vllm/v1/engine/async_llm.py, 0.26 to 0.32
    if known is None:
        raise ApolloError("this vLLM does not tell which requests run", "use 0.26 or newer")
    requests = [*known.request_states, *known.parent_requests]
    inside = {"internal": True} if "internal" in inspect.signature(engine.abort).parameters else {}
    await engine.abort(requests, **inside)
    return len(requests)
