"""Real processes, really killed: the daemon comes back by itself and reaches the weights of a life without kills."""

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest
from support.daemon import Daemon, chat_line, group_of

pytestmark = [pytest.mark.crash, pytest.mark.engine]

STAGES = [[chat_line(f"question {stage} {i}?", f"answer number {i}.") for i in range(60)] for stage in range(3)]
STOP_S = 10.0


def teach(daemon: Daemon, stage: int) -> None:
    """Drop one stage's file and return while it is being learned."""
    daemon.drop(f"stage{stage}.jsonl", *STAGES[stage])
    daemon.wait(lambda s: s["step"] >= 60 * stage + 4, f"stage {stage} to begin")


def learned(daemon: Daemon, stages: int) -> dict:
    return daemon.wait_learned(60 * stages)


def dead_within(pids: list[int], seconds: float) -> list[int]:
    """The groups of these pids that still have a process after that time."""
    deadline = time.monotonic() + seconds
    left = pids
    while left and time.monotonic() < deadline:
        left = [pid for pid in left if group_of(pid)]
        time.sleep(0.05)
    return left


@pytest.mark.timeout(600)
def test_every_process_killed_in_turn_and_the_weights_are_those_of_a_calm_run(tiny_model, tmp_path):
    shared_memory = set(os.listdir("/dev/shm"))
    calm = Daemon(tmp_path / "calm", tiny_model).start()
    try:
        calm.wait_ready()
        for stage in range(3):
            teach(calm, stage)
            status = learned(calm, stage + 1)
        expected = status["weights"]["fingerprint"]
        pids = [status["engine"]["pid"], status["trainer"]["pid"]]
        assert calm.stop() < STOP_S
    finally:
        calm.kill()
    assert not dead_within(pids, 1.0), "a process outlived a clean shutdown"
    assert not calm.socket.exists() and set(os.listdir("/dev/shm")) <= shared_memory

    daemon = Daemon(tmp_path / "killed", tiny_model).start()
    try:
        daemon.wait_ready()
        teach(daemon, 0)
        os.kill(daemon.status()["trainer"]["pid"], signal.SIGKILL)
        status = learned(daemon, 1)
        assert status["trainer"]["restarts"] == 1 and status["engine"]["restarts"] == 0
        assert json.loads(daemon.ctl("checkpoint", "--json").stdout)["step"] == 60

        teach(daemon, 1)
        engine = daemon.status()["engine"]["pid"]
        os.kill(engine, signal.SIGKILL)
        assert not dead_within([engine], 10.0), "the engine's processes outlived it"
        daemon.wait(lambda s: s["engine"]["restarts"] == 1 and s["engine"]["ready"], "the engine to be started again")
        status = learned(daemon, 2)
        assert status["engine"]["path"].endswith("step-00000060")

        teach(daemon, 2)
        pids = [daemon.status()["engine"]["pid"], daemon.status()["trainer"]["pid"]]
        daemon.kill()
        assert not dead_within(pids, 10.0), "children outlived a killed supervisor"
        daemon.start()
        final = learned(daemon, 3)
        assert final["weights"]["fingerprint"] == expected
        assert final["step"] == 180
        assert [r[0] for r in daemon.query("SELECT step FROM steps ORDER BY step")] == list(range(1, 181))
        seqs = [r[0] for r in daemon.query("SELECT seq FROM events ORDER BY seq")]
        assert seqs == list(range(1, len(seqs) + 1))
        assert daemon.ctl("journal", "verify").stdout.startswith("ok:")
        assert daemon.stop() < STOP_S
        assert not daemon.socket.exists() and set(os.listdir("/dev/shm")) <= shared_memory
    finally:
        daemon.kill()


@pytest.mark.timeout(600)
def test_the_trainer_killed_at_random_moments(tiny_model, tmp_path):
    """APOLLOD_CRASH_ROUNDS kills; each time the same engine goes on and no number is used twice."""
    rounds = int(os.environ.get("APOLLOD_CRASH_ROUNDS", "3"))
    seed = int(os.environ.get("APOLLOD_CRASH_SEED", "1"))
    chance = random.Random(seed)
    daemon = Daemon(tmp_path, tiny_model).start()
    try:
        engine = daemon.wait_ready()["engine"]["pid"]
        for round_ in range(rounds):
            daemon.drop(f"r{round_}.jsonl", *[chat_line(f"round {round_} line {i}?", f"answer {i}.") for i in range(8)])
            daemon.wait(lambda s: s["queue"]["pending"] > 0, "training")
            time.sleep(chance.uniform(0.0, 0.6))
            pid = daemon.status()["trainer"]["pid"]
            if pid:
                os.kill(pid, signal.SIGKILL)
            status = daemon.wait_learned(8 * (round_ + 1))
            daemon.ctl("resume")  # forget the crashes: here they are on purpose
            assert status["engine"]["pid"] == engine
        worker = max(group_of(engine))  # vLLM's worker or engine core: the API process alone is no engine
        os.kill(worker, signal.SIGKILL)
        daemon.wait(lambda s: s["engine"]["restarts"] == 1 and s["state"] == "serving", "an engine after its core was killed")
        assert daemon.query("SELECT count(*), count(DISTINCT step) FROM steps")[0] == (8 * rounds, 8 * rounds)
        assert daemon.query("SELECT count(*) FROM events WHERE kind = 'replay.diverged'")[0][0] == 0
        daemon.stop()
    finally:
        daemon.kill()


def test_paths_of_killed_daemons_are_private(tiny_model: Path, tmp_path: Path):
    daemon = Daemon(tmp_path, tmp_path / "missing").start()
    try:
        daemon.wait(lambda s: s["error"], "up", 30)
        for path in (daemon.journal, daemon.root / "state" / "apollod.lock"):
            assert path.stat().st_mode & 0o077 == 0, path
    finally:
        daemon.kill()
