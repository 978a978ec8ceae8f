"""The update under way, without a server: what is asked of the supervisor in which order, and what is not."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.updating_supervisor import NAMES, UpdatingSupervisor

from apollod.engine.http.versions import Names
from apollod.engine.http.weights.call_errors import BadCall, UpdateRefused
from apollod.engine.http.weights.update_calls import Updates
from apollod.errors import DaemonUnreachable
from apollod.wire import control_messages as msg

RECEIVE = msg.UpdateReceiveRequest("g", NAMES, ["bfloat16"] * 2, [[1], [1]])


class Case:
    """`waits`: requests of this type are answered once it is set."""

    def __init__(self) -> None:
        self.supervisor = UpdatingSupervisor()
        self.supervisor.groups.add("g")
        self.gone = False
        self.waits: dict[type, asyncio.Event] = {}
        self.names = Names()
        self.updates = Updates(self.ask, self.names)

    async def ask(self, message: Any, within_s: float) -> msg.Answer:
        if self.gone:
            raise DaemonUnreachable("no daemon answers", "start it")
        answer = self.supervisor(message)
        if type(message) in self.waits:
            await self.waits[type(message)].wait()
        return answer

    async def received(self, dialect: msg.Dialect = "sglang") -> None:
        async with self.updates.attempt(dialect):
            update = self.updates.of(dialect)
            assert update is not None
            await self.updates.receive(update, RECEIVE)


def run(work: Callable[[Case], Awaitable[None]]) -> Case:
    case = Case()
    asyncio.run(asyncio.wait_for(work(case), 20))
    return case


def test_whatever_is_raised_in_a_call_of_an_update_undoes_it() -> None:
    for error in (BadCall("no body", "send one"), RuntimeError("x"), asyncio.CancelledError()):

        async def work(case: Case, error: BaseException = error) -> None:
            await case.updates.open("vllm", "t")
            await case.received("vllm")
            with pytest.raises(type(error)):
                async with case.updates.attempt("vllm"):
                    raise error
            with pytest.raises(UpdateRefused, match="nothing is committed"):
                await case.updates.commit(case.updates.of("vllm"), "", "a start")

        assert run(work).supervisor.kinds() == ["open", "receive", "undo"]


def test_a_call_without_an_update_undoes_nothing() -> None:
    async def work(case: Case) -> None:
        await case.updates.open("vllm", "t")
        with pytest.raises(BadCall):
            async with case.updates.attempt("sglang"):
                raise BadCall("no body")

    assert run(work).supervisor.kinds() == ["open"]


def test_a_supervisor_that_does_not_answer_leaves_nothing_to_commit() -> None:
    async def work(case: Case) -> None:
        await case.updates.open("sglang", "t")
        case.gone = True
        with pytest.raises(DaemonUnreachable):
            await case.received()
        case.gone = False
        with pytest.raises(UpdateRefused, match="no daemon answers; start it"):
            await case.updates.commit(case.updates.of("sglang"), "", "a start")

    assert run(work).supervisor.kinds() == ["open"]


def test_a_commit_that_runs_is_neither_repeated_nor_spoiled() -> None:
    async def work(case: Case) -> None:
        await case.updates.open("sglang", "t")
        await case.received()
        done = case.waits[msg.UpdateCommitRequest] = asyncio.Event()
        committing = asyncio.create_task(case.updates.commit(case.updates.of("sglang"), "1", "a start"))
        await asyncio.sleep(0)
        for again in (case.received(), case.updates.commit(case.updates.of("sglang"), "1", "a start")):
            with pytest.raises(UpdateRefused, match="under way"):
                await again
        done.set()
        await committing
        assert case.updates.of("sglang") is None

    assert run(work).supervisor.kinds() == ["open", "receive", "commit"]


def test_two_beginnings_at_once_ask_once() -> None:
    async def work(case: Case) -> None:
        done = case.waits[msg.UpdateOpenRequest] = asyncio.Event()
        first = asyncio.create_task(case.updates.open("vllm", "t"))
        await asyncio.sleep(0)
        with pytest.raises(UpdateRefused, match="another request"):
            await case.updates.open("sglang", "t")
        done.set()
        assert (await first).dialect == "vllm"

    assert run(work).supervisor.kinds() == ["open"]


def test_what_an_old_call_breaks_is_not_the_update_that_was_begun_since() -> None:
    """The lease ended the first; its request comes back only now."""

    async def work(case: Case) -> None:
        await case.updates.open("vllm", "t")
        done = case.waits[msg.UpdateReceiveRequest] = asyncio.Event()
        old = asyncio.create_task(case.received("vllm"))
        await asyncio.sleep(0)
        case.supervisor.open = None
        await case.updates.open("vllm", "t")
        case.supervisor.fails[msg.UpdateReceiveRequest] = msg.Failure("late", "")
        old.cancel()
        with pytest.raises(asyncio.CancelledError):
            await old
        done.set()
        await case.updates.commit(case.updates.of("vllm"), "2", "a start")

    assert run(work).supervisor.kinds() == ["open", "receive", "open", "commit"]


def test_the_name_of_a_version_goes_with_the_commit() -> None:
    async def work(case: Case) -> None:
        assert await case.updates.label() == "default"
        await case.updates.open("sglang", "t")
        await case.received()
        await case.updates.rename("n")
        assert await case.updates.label() == "n"
        await case.updates.commit(case.updates.of("sglang"), "", "a start")
        assert await case.updates.label() == "n" == case.supervisor.label
        await case.updates.open("sglang", "t")
        await case.updates.commit(case.updates.of("sglang"), "m", "a start")
        assert await case.updates.label() == "m"

    run(work)
