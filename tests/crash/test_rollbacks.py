"""Killed in the middle of going back: the next life ends at the weights that were wanted."""

import os
import signal
from pathlib import Path

import pytest
from support.daemon import CRASH_ENGINE, SOON, Daemon, chat_line
from support.invariants import check_replay, check_stopped, wait_up

from apollod.core import events as ev
from apollod.failpoints import ONCE, VARIABLE
from apollod.wire import messages as msg

pytestmark = pytest.mark.crash

ALL = os.environ.get("APOLLOD_CRASH_POINTS") == "all"
IN_TRAINER = (  # in the order in which a rollback meets them; all in one life
    "trainer.restore.half-way",
    "trainer.restore.written",
    "trainer.checkpoint.renamed",
    "trainer.checkpoint.committed",
)
IN_SUPERVISOR = [
    "effect.PlanRollback.before",
    "effect.PlanRollback.after",
    "effect.Restore.before:2",
    "effect.Restore.after:2",
]
LIVES: list[tuple[str, tuple[str, ...]]] = (
    [("", IN_TRAINER), *((point, ()) for point in IN_SUPERVISOR)] if ALL else [(IN_SUPERVISOR[-1], IN_TRAINER)]
)
"""Where the supervisor dies in each rollback, and where the trainers of its next life do."""


@pytest.mark.timeout(1200)
def test_a_death_at_any_point_of_a_rollback_ends_at_its_weights(tiny_model: Path, tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, tiny_model, engine=CRASH_ENGINE).start()
    try:
        daemon.wait_ready()
        for turn, (point, in_trainer) in enumerate(LIVES):
            to = learn(daemon, turn, 4)["step"] - 2
            ((wanted,),) = daemon.query(f"SELECT fingerprint FROM steps WHERE step = {to}")
            daemon.stop()
            once = tmp_path / "points" / str(turn)
            once.mkdir(parents=True)
            in_next = {**SOON, VARIABLE: ",".join(in_trainer), ONCE: str(once)}
            daemon.start({**in_next, VARIABLE: point} if point else in_next)
            wait_up(
                daemon, lambda s: s["state"] == "serving", "all up"
            )  # nothing to undo in memory: by the checkpoints
            assert not os.listdir(once), "it was to die in the rollback"
            daemon.ask(msg.RollbackRequest(to))
            if point:
                assert daemon.process is not None and daemon.process.wait(60) == -signal.SIGKILL
                daemon.start(in_next)
            status = wait_up(daemon, at_rest, f"the end of a rollback to {to} through {point} {in_trainer}")
            while status["checkpoint"]["fingerprint"] != wanted:  # one that failed is not tried again at once by itself
                daemon.ask(msg.CheckpointRequest())
                status = wait_up(daemon, at_rest, "a checkpoint")
            assert (status["step"], status["weights"]["fingerprint"]) == (to, wanted)
            assert set(os.listdir(once)) == {one.partition(":")[0] for one in (point, *in_trainer) if one}
        daemon.stop()
    finally:
        daemon.kill()
    events = check_stopped(daemon)
    assert sum(isinstance(e, ev.RollbackCompleted) for e in events) == len(LIVES)
    assert check_replay(daemon) == 2 * len(LIVES)


def at_rest(status: dict) -> bool:
    return status["rollback"] is None and status["state"] == "serving"


def learn(daemon: Daemon, turn: int, count: int) -> dict:
    before = daemon.status()["queue"]["trained"]
    daemon.drop(f"turn{turn}.jsonl", *[chat_line(f"question {turn} {i}?", f"answer number {i}.") for i in range(count)])
    return daemon.wait_learned(before + count)
