"""The loop and a journal that fails: wait where waiting helps, leave with the reason where it does not."""

import anyio
import pytest

from apollod.adapters import journal_reader
from apollod.adapters.journal import Journal
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.effects import Effect
from apollod.core.fold import fold
from apollod.core.state import State
from apollod.errors import JournalError
from apollod.supervisor.loop import Loop

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


class NoEffects:
    """An executor that only ends the loop."""

    def __init__(self) -> None:
        self.exit = anyio.Event()
        self.ran: list[Effect] = []

    async def run(self, effect: Effect) -> list[inp.Input]:
        self.ran.append(effect)
        return []


async def run(path, failures: int, retryable: bool) -> tuple[Loop, NoEffects, list[ev.Recorded]]:
    journal = await FullDisk.open(path)
    journal.failures, journal.retryable = failures, retryable
    executor, loop = NoEffects(), Loop(State(), journal)
    try:
        with anyio.fail_after(20):
            loop.post(inp.Started(1, "test", SETTINGS, "/s"))
            async with anyio.create_task_group() as tasks:

                async def stop() -> None:
                    while failures and not loop.journal_error:
                        await anyio.sleep(0.01)
                    assert not failures or not executor.ran, "an effect ran before its event was durable"
                    while loop.state.settings is None:
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
