"""The loop and a journal that fails: wait where waiting helps, leave with the reason where it does not. And what it
bounds: how many inputs wait at once, how many events a start folds."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from support.no_effects import NoEffects

from apollod.adapters.journal import journal_reader
from apollod.adapters.journal.writer import Journal
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.fold import fold
from apollod.core.inputs import Batch, Line
from apollod.core.state import State
from apollod.errors import JournalError
from apollod.supervisor.loop import Loop
from apollod.wire.state_snapshot import fold_code

SETTINGS = ev.Settings(model_path="/m")


class FullDisk(Journal):
    """The real journal, on a disk that is full for the first `failures` appends."""

    failures = 0
    retryable = True

    async def append(self, events, at_ns):
        if self.failures:
            self.failures -= 1
            error = JournalError("the disk is full", "make room")
            error.retryable = self.retryable
            raise error
        return await super().append(events, at_ns)


async def run(path, failures: int, retryable: bool) -> tuple[Loop, NoEffects, list[ev.Recorded]]:
    journal = await FullDisk.open(path)
    journal.failures, journal.retryable = failures, retryable
    executor, loop = NoEffects(), Loop(State(), journal)
    try:
        with anyio.fail_after(120):
            loop.post(inp.Started(1, "test", SETTINGS, "/s"))
            async with anyio.create_task_group() as tasks:

                async def stop() -> None:
                    while failures and not loop.journal_error:
                        await anyio.sleep(0.01)
                    assert not failures or not executor.ran, "an effect ran before its event was durable"
                    while loop.state.daemon.settings is None:
                        await anyio.sleep(0.01)
                    executor.exit.set()
                    loop.post(inp.Tick())

                tasks.start_soon(stop)
                await loop.run(executor)
                tasks.cancel_scope.cancel()
        return loop, executor, [item for item, _ in journal_reader.recorded(path)]
    finally:
        await journal.close()


def test_a_full_disk_is_waited_for_and_nothing_is_lost_or_done_before(tmp_path):
    loop, executor, recorded = anyio.run(run, tmp_path / "j.db", 1, True)
    assert loop.journal_error == "" and executor.ran
    assert [r.event.kind for r in recorded] == ["daemon.started"]
    state = State()
    for r in recorded:
        fold(state, r)
    assert state == loop.state


def test_a_journal_that_waiting_cannot_mend_ends_the_loop_with_its_reason(tmp_path):
    with pytest.raises((JournalError, ExceptionGroup)) as caught:
        anyio.run(run, tmp_path / "j.db", 1, False)
    error = caught.value.exceptions[0] if isinstance(caught.value, ExceptionGroup) else caught.value
    assert isinstance(error, JournalError) and "full" in str(error)


@asynccontextmanager
async def started(path: Path) -> AsyncIterator[tuple[Loop, NoEffects]]:
    """A loop that was not run yet, on the real journal, with its first input."""
    journal = await Journal.open(path)
    try:
        with anyio.fail_after(120):
            loop = Loop(State(), journal)
            loop.post(inp.Started(1, "test", SETTINGS, "/s"))
            yield loop, NoEffects()
    finally:
        await journal.close()


def test_1024_inputs_wait_and_no_more_until_the_loop_takes_some_and_a_childs_report_does_not_wait(
    tmp_path: Path,
) -> None:
    async def crowd() -> int:
        answered = 0

        async def submit() -> None:
            nonlocal answered
            await loop.submit(inp.Tick())
            answered += 1

        async with started(tmp_path / "j.db") as (loop, executor), anyio.create_task_group() as tasks:
            before = len(loop._inputs)
            for _ in range(1100):
                tasks.start_soon(submit)
            await anyio.wait_all_tasks_blocked()
            assert len(loop._inputs) - before == 1024
            loop.post(inp.Tick())
            assert len(loop._inputs) - before == 1025
            tasks.start_soon(loop.run, executor)
            while answered < 1100:
                await anyio.sleep(0.01)
            executor.exit.set()
            loop.post(inp.Tick())
        return answered

    assert anyio.run(crowd) == 1100


def test_after_10000_events_a_snapshot_is_left_while_the_loop_runs_on(tmp_path: Path) -> None:
    """What a start after kill -9 folds stays bounded; the one of a clean end comes too late for that."""
    path = tmp_path / "j.db"

    def lines(count: int) -> inp.LinesRead:
        each = tuple(Line(number=i + 1, example=f"example {i}", record=b"{}") for i in range(count))
        return inp.LinesRead(Batch("s", "/s", 10, count, each), frozenset())

    def left() -> int:
        found = journal_reader.snapshot(path, fold_code())
        return found.seq if found else 0

    async def live() -> tuple[list[int], int]:
        async with started(path) as (loop, executor), anyio.create_task_group() as tasks:
            tasks.start_soon(loop.run, executor)
            await loop.submit(lines(9_990))
            seen = [left()]
            await loop.submit(lines(10))  # known already: nothing more waits, but these are events, too
            due = loop.state.seq
            while not left():
                await anyio.sleep(0.01)
            await loop.submit(lines(10))
            await anyio.sleep(0.1)
            seen.append(left())
            executor.exit.set()
            loop.post(inp.Tick())
        return seen, due

    seen, due = anyio.run(live)
    assert due == 1 + 9_991 + 11 and seen == [0, due], "neither sooner nor again"
    assert left() == due + 11, "and one at a clean end"


def test_a_minute_without_events_leaves_a_snapshot_while_the_loop_runs_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most of a quiet day is then not folded at the start after kill -9."""
    monkeypatch.setattr("apollod.supervisor.loop.SNAPSHOT_IDLE_NS", 1_000_000_000)
    path = tmp_path / "j.db"

    async def live() -> int:
        async with started(path) as (loop, executor), anyio.create_task_group() as tasks:
            tasks.start_soon(loop.run, executor)
            await loop.submit(inp.Tick())
            assert journal_reader.snapshot(path, fold_code()) is None, "not at once"
            while (found := journal_reader.snapshot(path, fold_code())) is None:
                await anyio.sleep(0.1)
                await loop.submit(inp.Tick())
            executor.exit.set()
            loop.post(inp.Tick())
        return found.seq

    assert anyio.run(live) == 1


def answer_of(response: str, name: str, text: str) -> Line:
    sampled = ev.Sampled(response, (1, 2), (3,))
    return Line(1, name, b'{"text":"%s"}' % text.encode(), responses=(inp.Response(f"k{name}", 0, sampled),))


def test_a_rating_is_decided_with_what_the_journal_holds_of_its_answer(tmp_path: Path) -> None:
    anyio.run(_rating, tmp_path / "j.db")


async def _rating(path: Path) -> None:
    async with started(path) as (loop, executor), anyio.create_task_group() as tasks:
        tasks.start_soon(loop.run, executor)

        async def rate(rating: ev.Rating, line: Line | None) -> list[ev.Event]:
            told = await loop.submit(
                inp.Rated("r1", rating, "http", original=ev.Sampled("r1", (1, 2), (3,)), line=line)
            )
            return [one.event for one in told]

        async def read(*lines: Line) -> list[str]:
            told = await loop.submit(inp.LinesRead(Batch("s", "/log", 9, 1, lines), frozenset()))
            return [one.event.kind for one in told]

        good = answer_of("r1", "good", "a")
        assert [event.kind for event in await rate("good", good)] == ["example.accepted", "feedback.given"]
        assert await rate("good", good) == [], "the journal knows"
        declined, given = await rate("bad", None)
        assert isinstance(declined, ev.ExampleDeclined) and isinstance(given, ev.FeedbackGiven) and given.replaces
        assert await read(answer_of("r1", "log", "b")) == ["example.duplicate", "source.consumed"]

        assert await read(answer_of("r2", "other", "c")) == ["example.accepted", "source.consumed"]
        bad = inp.Rated("r3", "bad", "http", original=ev.Sampled("r3", (1, 2), (3,)))
        await loop.submit(bad)
        assert await read(answer_of("r3", "third", "d")) == ["example.duplicate", "source.consumed"], "it was bad"
        tasks.cancel_scope.cancel()
