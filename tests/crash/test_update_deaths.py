"""An update by an outside trainer, with a death of every process at every point of its way: afterwards the weights are
those of before or those that were sent, and the journal says which."""

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from integration.test_updates import changed, made, stored
from support.commands import ran
from support.daemon import SOON, Daemon
from support.invariants import check_stopped, journal_of, say

from apollod.core import events as ev
from apollod.errors import ApolloError
from apollod.failpoints import ONCE, VARIABLE
from apollod.wire import messages as msg

pytestmark = pytest.mark.crash

ALL = os.environ.get("APOLLOD_CRASH_POINTS") == "all"
DURABLE = ("payload", "checkpoint", "none")
POINTS = {
    "payload": [
        f"effect.{effect}.{when}"
        for effect in ("PauseEngine", "RunStep", "ResumeEngine")
        for when in ("before", "after")
    ]
    + ["effect.RefreshEngine.before:2", "effect.RefreshEngine.after:2"]  # the first one is that of the start
    + ["trainer.update.half-way", "trainer.step.unreported"],
    "checkpoint": ["effect.WriteCheckpoint.before", "effect.WriteCheckpoint.after", "trainer.checkpoint.renamed"],
    "none": ["effect.RemoveUpdateFiles.before", "effect.RemoveUpdateFiles.after"],
}
"""Points that every update passes, by `[control] durable`."""
COMMITS = 60
"""Transactions of a life with an update are fewer."""
TURNS = 20
SENT = ("opened", "received", "to be written")
"""Phases of an update, as its sender knows them."""
KILLS = [(role, phase) for role in ("engine", "trainer") for phase in SENT]


class Life:
    """A daemon to which outside trainers send weights, each other than those before."""

    def __init__(self, root: Path, model: Path, durable: str) -> None:
        self.daemon = made(root, model, f'durable = "{durable}"\n')
        self.durable = durable
        self._once, self._turns = root / "points", count(1)
        self.name = next(name for name, one in stored(model).items() if one.ndim == 2)

    def up(self, *points: str) -> Path:
        """Start it with these points armed; the directory has a file for each that kills."""
        once = self._once / str(next(self._turns))
        once.mkdir(parents=True)
        self.daemon.start({**SOON, VARIABLE: ",".join(points), ONCE: str(once)})
        return once

    def opened(self) -> int:
        """Number of updates that the journal has."""
        return sum(isinstance(one, ev.UpdateOpened) for one in journal_of(self.daemon))

    def ready(self) -> dict[str, Any]:
        return self.daemon.wait(
            lambda s: (
                s["trainer"]["ready"] and s["running"] is None and not s["rollback"] and s["updates"]["lease"] is None
            ),
            "the daemon at rest",
            180,
        )

    def update(self, dies: Callable[[str], None] = lambda phase: None) -> torch.Tensor:
        """Send weights until the daemon, or the update, is gone; what is sent. `dies` is called in each phase."""
        turn = next(self._turns)
        torch.manual_seed(turn)
        one = stored(self.daemon.model)[self.name]
        sent = (torch.randn(one.shape) * 0.02).to(one.dtype)
        requests = (
            lambda: self.daemon.ask(msg.UpdateOpenRequest("sglang", "a test")),
            lambda: self.daemon.ask(
                msg.UpdateDirectoryRequest(str(changed(self.daemon.root / "outside" / str(turn), **{self.name: sent})))
            ),
            lambda: self.daemon.ask(msg.UpdateCommitRequest(f"their-{turn}")),
        )
        for phase, request in zip(SENT, requests, strict=True):
            if phase == SENT[-1]:
                dies(phase)
            request()
            if phase != SENT[-1]:
                dies(phase)
        return sent

    def outcome(self, before: str, sent: torch.Tensor) -> str:
        """What became of the last update: `committed`, `undone` or `lost`. The weights are those that it says."""
        status = self.ready()
        last: dict[type[ev.Event], Any] = {type(one): one for one in journal_of(self.daemon)}
        opened_, done = last[ev.UpdateOpened], last.get(ev.UpdateCommitted)
        lost, undone = last.get(ev.UpdateLost), last.get(ev.UpdateUndone)
        found = status["weights"]["fingerprint"]
        if done is not None and done.update == opened_.update and (lost is None or lost.step != done.step):
            assert found == done.fingerprint != before
            self.daemon.ctl("checkpoint")
            assert torch.equal(stored(self.daemon.model)[self.name], sent)
            return "committed"
        assert found == before, "neither the old weights nor the new ones"
        if done is not None and done.update == opened_.update:
            return "lost"
        assert undone is not None and (undone.update, undone.fingerprint) == (opened_.update, before)
        return "undone"


@pytest.fixture
def lives(tmp_path: Path, tiny_model: Path) -> Iterator[Callable[[str], Life]]:
    begun: list[Life] = []

    def life(durable: str) -> Life:
        begun.append(Life(tmp_path / durable, tiny_model, durable))
        return begun[-1]

    yield life
    for one in begun:
        one.daemon.end()


def ended(life: Life) -> None:
    """Stop it, and look at all that it wrote."""
    life.daemon.stop()
    check_stopped(life.daemon)
    assert ran("ctl", "journal", "verify", "--file", life.daemon.journal).returncode == 0


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("durable", DURABLE if ALL else ["checkpoint"])
def test_a_death_at_a_point_that_it_passes(lives: Callable[[str], Life], durable: str) -> None:
    life = lives(durable)
    points = (
        POINTS[durable] if ALL else ["trainer.update.half-way", "effect.RunStep.before", "effect.WriteCheckpoint.after"]
    )
    for number, point in enumerate(points):
        if number:
            life.daemon.stop()
        once = life.up(point)
        before = life.ready()["weights"]["fingerprint"]
        assert not os.listdir(once), f"{point} was passed before the update"
        sent = life.update()
        if point.startswith("effect"):
            assert life.daemon.process is not None and life.daemon.process.wait(60) == -signal.SIGKILL, point
            life.up()
        found = life.outcome(before, sent)
        assert os.listdir(once) == [point.partition(":")[0]]
        say(f"{durable}, {point}: {found}")
        assert found == ("lost" if durable == "none" else "committed"), point
    ended(life)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("durable", DURABLE if ALL else ["payload"])
def test_a_child_killed_in_each_phase(lives: Callable[[str], Life], durable: str) -> None:
    """The trainer's death spoils nothing that was received; the engine's ends an update that is not to be written yet,
    since the sender's requests went there."""
    life = lives(durable)
    life.up()
    for role, at in KILLS if ALL else KILLS[1::4]:
        status = life.ready()
        sent = life.update(partial(replaced, life.daemon, role, at))
        found = life.outcome(status["weights"]["fingerprint"], sent)
        say(f"{durable}, {role} when {at}: {found}")
        assert found == ("undone" if role == "engine" and at != SENT[-1] else "committed")
    ended(life)


def replaced(daemon: Daemon, role: str, at: str, phase: str) -> None:
    """Kill this child in phase `at`, and wait for its successor, but not if the last request is to meet the death."""
    if phase == at:
        pid = daemon.status()[role]["pid"]
        os.kill(pid, signal.SIGKILL)
        if phase != SENT[-1]:
            daemon.wait(lambda s: s[role]["pid"] not in (0, pid), f"another {role}", 60)


@pytest.mark.timeout(3000)
@pytest.mark.skipif(
    not ALL, reason="APOLLOD_CRASH_POINTS=all (make crash); random lives of tests/property have the like"
)
@pytest.mark.parametrize("durable", DURABLE)
def test_the_supervisor_killed_around_a_transaction(lives: Callable[[str], Life], durable: str) -> None:
    """Some of those of a life with one update, from its start on."""
    life = lives(durable)
    life.up()
    life.ready()
    turns = [(when, nth) for nth in range(1, COMMITS) for when in ("before", "after")]
    found = Counter[str]()
    for when, nth in Random(durable).sample(turns, TURNS):
        before, known = life.ready()["weights"]["fingerprint"], life.opened()
        life.daemon.stop()
        once = life.up(f"journal.{when}-commit:{nth}")
        sent = None
        try:
            life.ready()
            sent = life.update()
            life.daemon.wait(lambda s: s["updates"]["lease"] is None, "its end", 60)
        except ApolloError:
            assert os.listdir(once), "it was not killed"
        last = journal_of(life.daemon)[-1].kind
        life.daemon.end()  # it had fewer transactions than that, or has its last ones now
        life.up()
        if sent is not None and life.opened() > known:
            became = life.outcome(before, sent)
            found[f"{became} after {last}"] += 1
        else:
            assert life.ready()["weights"]["fingerprint"] == before
            found["not begun"] += 1
    say(f"{durable}: {dict(found)}")
    assert {one.partition(" ")[0] for one in found} >= {"not", "committed", "undone"}
    ended(life)
