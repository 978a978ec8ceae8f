"""The fence: a write's pause and a caller's, of which neither ends the other's."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.updating_supervisor import RecordingEngine

from apollod.engine.refresh import Fence, abort_all
from apollod.errors import ApolloError

WRITE = ("pause", "keep", True)


class Drained(RecordingEngine):
    """A vLLM in which mode wait lasts until `idle`."""

    def __init__(self) -> None:
        super().__init__()
        self.idle = asyncio.Event()

    async def pause_generation(self, *, mode: str = "abort", clear_cache: bool = True) -> None:
        self.calls.append(("pause", mode, clear_cache))
        if mode == "wait":
            await self.idle.wait()


def run(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 20))


def test_the_end_of_a_write_leaves_a_callers_pause_and_the_other_way_round() -> None:
    async def work() -> None:
        engine, told = RecordingEngine(), []
        fence = Fence(engine, told.append)
        await fence.pause_for_caller("abort", True, 30)
        await fence.pause(clear=True, at_most_s=30)
        assert fence.held and fence.held_by_caller
        assert await fence.resume() > 0 and engine.calls == [("pause", "abort", True), WRITE], "the caller's goes on"
        assert fence.held_by_caller and await fence.resume_for_caller() > 0
        assert engine.calls[2:] == ["resume"] and not fence.held
        await fence.pause(clear=True, at_most_s=30)
        assert await fence.resume_for_caller() == 0 and engine.calls[3:] == [WRITE], "the write's goes on"
        assert await fence.resume() > 0 and engine.calls[4:] == ["resume"] and not told

    run(work)


def test_a_callers_pause_ends_while_a_write_holds() -> None:
    async def work() -> None:
        engine = RecordingEngine()
        fence = Fence(engine, lambda seconds: None)
        await fence.pause_for_caller("keep", False, 30)
        await fence.pause(clear=True, at_most_s=30)
        assert await fence.resume_for_caller() > 0
        assert "resume" not in engine.calls and fence.held and not fence.held_by_caller
        await fence.resume()
        assert engine.calls[-1] == "resume"

    run(work)


def test_a_callers_pause_begins_after_a_write() -> None:
    """In mode wait, vLLM would go on with the requests that are held for the write."""

    async def work() -> None:
        engine = RecordingEngine()
        fence = Fence(engine, lambda seconds: None)
        await fence.pause(clear=False, at_most_s=30)
        waiting = asyncio.create_task(fence.pause_for_caller("keep", True, 30))
        await asyncio.sleep(0.05)
        assert not waiting.done() and engine.calls == [("pause", "keep", False)]
        await fence.resume()
        await waiting
        assert engine.calls[1:] == ["resume", WRITE] and fence.held_by_caller

    run(work)


def test_a_write_that_fails_leaves_a_callers_pause() -> None:
    async def work() -> None:
        engine = RecordingEngine()
        fence = Fence(engine, lambda seconds: None)
        await fence.pause_for_caller("keep", True, 30)
        engine.broken = True
        with pytest.raises(RuntimeError):
            await fence.pause(clear=True, at_most_s=30)
        assert "resume" not in engine.calls and fence.held_by_caller
        await asyncio.wait_for(fence.resume_for_caller(), 1)
        engine.broken = False
        await asyncio.wait_for(fence.pause_for_caller("keep", True, 30), 1)  # the write that failed is over

    run(work)


def test_each_ends_after_its_own_time_and_tells_its_own() -> None:
    async def work() -> None:
        engine, writes, callers = RecordingEngine(), [], []
        fence = Fence(engine, writes.append)
        fence.caller_expired = callers.append
        await fence.pause_for_caller("keep", True, 0.05)
        await fence.pause(clear=True, at_most_s=30)
        await asyncio.sleep(0.15)
        assert len(callers) == 1 and not writes and "resume" not in engine.calls
        await fence.resume()
        assert engine.calls[-1] == "resume"
        await fence.pause_for_caller("keep", True, 0.3)
        await fence.pause(clear=True, at_most_s=0.05)
        await asyncio.sleep(0.15)
        assert len(writes) == 1 and len(callers) == 1 and engine.calls.count("resume") == 1
        await fence.pause_for_caller("keep", True, 0.4)  # from now on
        await asyncio.sleep(0.25)
        assert fence.held_by_caller
        await asyncio.sleep(0.3)
        assert not fence.held and len(callers) == 2

    run(work)


def test_requests_that_a_caller_lets_end_go_on_after_a_write() -> None:
    async def work() -> None:
        engine = Drained()
        fence = Fence(engine, lambda seconds: None)
        pausing = asyncio.create_task(fence.pause_for_caller("wait", False, 30))
        await asyncio.sleep(0.01)
        await fence.pause(clear=True, at_most_s=30)
        await fence.resume()
        await asyncio.sleep(0.01)
        assert engine.calls == [("pause", "wait", False), WRITE, ("pause", "wait", False)]
        engine.idle.set()
        await pausing
        await fence.resume_for_caller()
        assert engine.calls[-1] == "resume"

    run(work)


def test_a_pause_that_is_ended_while_it_begins_is_over() -> None:
    async def work() -> None:
        engine = Drained()
        fence = Fence(engine, lambda seconds: None)
        pausing = asyncio.create_task(fence.pause_for_caller("wait", False, 30))
        await asyncio.sleep(0.01)
        await fence.resume_for_caller()
        engine.idle.set()
        await pausing
        assert not fence.held and engine.calls[-1] == "resume"

    run(work)


def test_requests_that_do_not_end_in_time_end_the_pause() -> None:
    async def work() -> None:
        engine = Drained()
        fence = Fence(engine, lambda seconds: None)
        with pytest.raises(TimeoutError):
            await fence.pause_for_caller("wait", False, 0.05)
        assert not fence.held and engine.calls[-1] == "resume"

    run(work)


def test_all_running_requests_are_aborted_by_their_inner_ids() -> None:
    class Older(RecordingEngine):
        async def abort(self, request_id: Any) -> None:  # type: ignore[override]
            self.calls.append(list(request_id))

    async def work() -> None:
        engine, older = RecordingEngine(), Older()
        engine.request_states, engine.parent_requests = {"a": 1}, {"b": 1}
        assert await abort_all(engine) == 2 and engine.calls == [("abort", ["a", "b"], True)]
        assert await abort_all(older) == 1 and older.calls == [["a"]]
        with pytest.raises(ApolloError, match="which requests run"):
            await abort_all(object())

    run(work)
