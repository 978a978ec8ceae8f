"""The daemon killed at every point of a lesson: its next lives go on with it, to the weights of a lesson that nobody
disturbed.

Engine: the stub, which does what it is told and knows nothing, so a lesson ends when its budget does.
APOLLOD_CRASH_POINTS=all (`make crash`) dies at each point; else at two.
"""

import json
import os
import signal
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import pytest
from support.daemon import STUB, Daemon
from support.fork_server import ForkedPopen
from support.invariants import check_replay, check_stopped, say

from apollod.adapters.ipc import offline_trainer
from apollod.cli.main import main
from apollod.core import events as ev
from apollod.failpoints import ONCE, VARIABLE
from apollod.testing.stub_engine import OBEYS
from apollod.wire import messages as msg

pytestmark = pytest.mark.crash

ALL = os.environ.get("APOLLOD_CRASH_POINTS") == "all"
CALLS = [
    f"effect.{name}.{when}" for name in ("WordLesson", "AskLesson", "PrepareLesson") for when in ("before", "after")
]
LATER = ["effect.PrepareLesson.after:2", "trainer.step.updated", "effect.RunStep.after", "effect.AskLesson.after"]
"""In the order in which a lesson of `STEPS` steps comes there."""
POINTS = (
    [*CALLS, *LATER, "effect.AskLesson.before"] if ALL else ["effect.PrepareLesson.after", "effect.AskLesson.after"]
)
DIES_S = 60.0
STEPS = 4
"""two rounds: with 256 tokens a step takes half of the wordings of a round"""
TAUGHT = ("What port does Quillon listen on?", "Quillon listens on port 7341.")


def life(directory: Path, model: Path) -> Daemon:
    return Daemon(directory, model, f"\n[lessons]\nsteps = {STEPS}\n", engine=STUB)


def over(status: dict[str, int]) -> bool:
    return status["lessons"]["given_up"] == 1  # type: ignore[index]


def ended(daemon: Daemon) -> tuple[list[ev.Event], str]:
    """After a clean stop: all events, and the fingerprint of the weights."""
    daemon.stop()
    events = check_stopped(daemon)
    return events, [e for e in events if isinstance(e, ev.StepCompleted)][-1].fingerprint


@pytest.mark.timeout(900)
def test_a_lesson_ends_in_the_same_weights_wherever_the_daemon_dies(tiny_model, tmp_path, monkeypatch):
    monkeypatch.setenv(OBEYS, "1")
    calm, killed = life(tmp_path / "calm", tiny_model), life(tmp_path / "killed", tiny_model)
    try:
        calm.start()
        calm.wait(lambda s: s["state"] in ("serving", "training"), "ready", DIES_S)
        said = json.loads(
            calm.ctl("teach", "--question", TAUGHT[0], "--answer", TAUGHT[1], "--json", check=False).stdout
        )
        assert (said["state"], said["steps"], said["lesson"]) == ("given up", STEPS, "L1"), said
        assert said["before"]["told"][0] == said["before"]["told"][1] > said["before"]["bare"][0] == 0
        assert f"{STEPS} steps were not enough" in said["reason"] and said["seconds"] > 0
        _, fingerprint = ended(calm)
        for number, point in enumerate(POINTS):
            (once := tmp_path / f"once{number}").mkdir()
            killed.start({VARIABLE: point, ONCE: str(once)})
            if not number:
                killed.wait(lambda s: s["pid"], "listening", DIES_S)
                killed.ask(msg.TeachRequest("", *TAUGHT, by="t"))
            assert killed.process is not None
            if point.startswith("trainer."):
                killed.wait(lambda s, o=once: os.listdir(o), "a dead trainer", DIES_S)  # type: ignore[misc]
                killed.kill()
            else:
                assert killed.process.wait(DIES_S) == -signal.SIGKILL, f"{point}: {killed.log()[-2000:]}"
            assert os.listdir(once) == [point.partition(":")[0]]
            say(f"{point}: died")
        killed.start()
        killed.wait(over, "the end of the lesson", DIES_S)
        events, same = ended(killed)
    finally:
        calm.kill()
        killed.kill()
    assert same == fingerprint
    practised = [e.step for e in events if isinstance(e, ev.LessonPractised)]
    assert practised == sorted(practised) and list(dict.fromkeys(practised)) == [*range(1, STEPS + 1)]
    assert len({e.example for e in events if isinstance(e, ev.LessonPractised)}) == len(practised)
    assert sum(isinstance(e, ev.LessonGiven) for e in events) == 1
    assert check_replay(killed) == STEPS
    assert base_again(killed) == next(e.fingerprint for e in events if isinstance(e, ev.TrainerBound))


def base_again(daemon: Daemon) -> str:
    """Fingerprint of a replay without the lesson."""
    with patch.object(offline_trainer, "subprocess", ForkedPopen), redirect_stdout(StringIO()) as told:
        code = main(["replay", "--config", str(daemon.config), "--json", "--without", "L1"])
    assert code == 0, told.getvalue()
    return str(json.loads(told.getvalue())["fingerprint"])
