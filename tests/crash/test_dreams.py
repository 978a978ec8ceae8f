"""The daemon killed at every point of a dream, and the same dream gone on with by its next life.

Engine: the stub, which does what it is told. APOLLOD_CRASH_POINTS=all (`make crash`) dies at each point; else at one.
"""

import os
import signal
import time
from collections.abc import Callable

import pytest
from property.test_dreams import Audit
from support.daemon import STUB, Daemon
from support.invariants import check_replay, check_steps, journal_of, say

from apollod.adapters.journal import journal_reader
from apollod.core import events as ev
from apollod.failpoints import ONCE, VARIABLE
from apollod.testing.stub_engine import OBEYS
from apollod.wire import messages as msg

pytestmark = pytest.mark.crash

ALL = os.environ.get("APOLLOD_CRASH_POINTS") == "all"
CALLS = [
    f"effect.{name}.{when}"
    for name in ("ImagineScenario", "AnswerScenario", "JudgeDream", "TestScenario")
    for when in ("before", "after")
]
POINTS = [*CALLS, "effect.JudgeDream.after:3", "effect.TestScenario.after:6"] if ALL else ["effect.JudgeDream.after"]
CANCELLED = ["effect.CancelDream.before", "effect.CancelDream.after"] if ALL else []
"""Reached where somebody stops dreams."""
DIES_S = 60.0

DREAMING = """
[dream]
mode = "always"
[[dream.pattern]]
name = "yes"
instruction = "Say YES."
contrast = ["Say NO."]
check = { regex = "YES" }
held_out = 2
"""


def until(daemon: Daemon, what: Callable[[list[ev.Event]], object]) -> list[ev.Event]:
    """The journal's events as soon as they are so."""
    for _ in range(int(DIES_S / 0.05)):
        assert daemon.alive(), daemon.log()[-2000:]
        if daemon.journal.exists() and what(events := journal_of(daemon)):
            return events
        time.sleep(0.05)
    raise AssertionError(daemon.log()[-2000:])


def practised(count: int) -> Callable[[list[ev.Event]], bool]:
    return lambda events: sum(isinstance(e, ev.DreamTrained) for e in events) >= count


def open_dream(events: list[ev.Event]) -> str:
    ended = {e.dream for e in events if isinstance(e, ev.DreamSettled | ev.DreamAbandoned)}
    return next((e.dream for e in events if isinstance(e, ev.DreamRequested) and e.dream not in ended), "")


@pytest.mark.timeout(900)
def test_a_dream_goes_on_after_a_death_at_each_of_its_points(tiny_model, tmp_path, monkeypatch):
    monkeypatch.setenv(OBEYS, "1")
    daemon = Daemon(tmp_path, tiny_model, DREAMING, engine=STUB)
    left: list[tuple[str, int]] = []
    try:
        for number, point in enumerate([*POINTS, *CANCELLED]):
            (once := tmp_path / f"once{number}").mkdir()
            daemon.start({VARIABLE: point, ONCE: str(once)})
            assert daemon.process is not None
            if point in CANCELLED:
                before = sum(isinstance(e, ev.DreamSettled) for e in journal_of(daemon))
                until(daemon, lambda events, n=before: sum(isinstance(e, ev.DreamSettled) for e in events) > n)  # type: ignore[misc]
                stop_dreams(daemon)
            assert daemon.process.wait(DIES_S) == -signal.SIGKILL, f"{point}: {daemon.log()[-2000:]}"
            assert os.listdir(once) == [point.partition(":")[0]]
            events = journal_of(daemon)
            say(f"{point}: {open_dream(events) or 'no dream'} is open after {len(events)} events")
            left.append((open_dream(events), len(events)))
            if point in CANCELLED:
                daemon.start()
                until(daemon, lambda events: any(isinstance(e, ev.EngineReady) for e in events[left[-1][1] :]))
                start_dreams(daemon)
                daemon.kill()
        daemon.start()
        have = sum(isinstance(e, ev.DreamTrained) for e in journal_of(daemon))
        until(daemon, practised(have + (2 if ALL else 1)))
        daemon.stop()
    finally:
        daemon.kill()
    events = journal_of(daemon)
    assert journal_reader.verify(daemon.journal) is None
    check_steps(events)
    for dream, at in left:  # the same dream, not another one
        assert not dream or any(isinstance(e, ev.DreamSettled) and e.dream == dream for e in events[at:]), dream
    audit = Audit()
    for event in events:
        audit.see(event)
    assert not [e for e in events if isinstance(e, ev.DreamAbandoned | ev.StepFailed)]
    if ALL:
        assert check_replay(daemon) == sum(isinstance(e, ev.StepCompleted) for e in events)


def stop_dreams(daemon: Daemon) -> None:
    """Asked by a life that dies of it."""
    daemon.ask(msg.DreamStopRequest("t"))


def start_dreams(daemon: Daemon) -> None:
    daemon.ask(msg.DreamStartRequest("", 0, "t"))
