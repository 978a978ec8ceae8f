"""SIGKILL at random instants while agents write into a watched directory. APOLLOD_CRASH_DIRECTORY_KILLS kills (2;
`make crash`: 60), seed APOLLOD_CRASH_SEED."""

import os
import random
import time
from pathlib import Path

import pytest
from support.agent_load import AgentLoad, check_learned
from support.daemon import Daemon
from support.effort import LONG
from support.fork_server import said
from support.invariants import check_stopped, say

from apollod.core import events as ev

pytestmark = pytest.mark.crash

KILLS = int(os.environ.get("APOLLOD_CRASH_DIRECTORY_KILLS", "60" if LONG else "2"))
SEED = int(os.environ.get("APOLLOD_CRASH_SEED", "1"))
TAKEN_S = 300.0


@pytest.mark.timeout(1800)
def test_no_turn_is_lost_or_doubled(tmp_path: Path) -> None:
    """No engine and no model: a daemon reads its sources all the same."""
    agents = tmp_path / "agents"
    watch = f'[[watch]]\npath = "{agents}"\nmodels = ["*"]\nsettle_s = 1\npoll_s = 0.1\n'
    chance = random.Random(SEED)
    said("pass")  # until there is a process to fork daemons from, while which agents would write much
    daemon = Daemon(tmp_path, tmp_path / "no-model", watch)
    load = AgentLoad(agents, SEED, 0.02 if LONG else 0.05).start()
    taken = 0
    try:
        for number in range(KILLS):
            daemon.start()
            if number % 4 != 1:
                daemon.wait(lambda s, before=taken: s["queue"]["accepted"] > before, "an answer", 180)
                time.sleep(chance.uniform(0.0, 0.5))
            else:
                time.sleep(chance.uniform(0.2, 1.0))  # while it starts
            assert daemon.alive(), daemon.log()[-2000:]
            daemon.kill()
            ((taken,),) = daemon.query("SELECT count(*) FROM events WHERE kind = 'example.accepted'")
            say(f"directory {number + 1}/{KILLS} (seed {SEED}): killed with {taken} of {len(load.texts)} answers taken")
        load.wait()
        load.stop()
        daemon.start()
        daemon.wait(lambda s: s["queue"]["accepted"] >= len(load.texts), f"all of {len(load.texts)}", TAKEN_S)
        daemon.stop()
    finally:
        daemon.kill()
    events = check_stopped(daemon)
    check_learned(events, load)
    paths = {e.path for e in events if isinstance(e, ev.SourceDiscovered)}
    say(f"directory: {len(load.texts)} answers in {len(paths)} sources, {dict(load.done)}")
    assert min(load.done.values()) > 0 and len(load.done) == 5
    assert not [e for e in events if isinstance(e, ev.SourceBlocked) and e.mode != "poll"]
