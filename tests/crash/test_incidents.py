"""The daemon killed at every point of an alarm: whoever did it is named, and the weights are those without them.

With vLLM and the model that ships with apollod, in `make crash` only: each life has to load both.
"""

import json
import os
import random
import signal
from pathlib import Path

import pytest
from support.invariants import say

from apollod.failpoints import ONCE, VARIABLE
from benchmarks.poison import Life
from benchmarks.poison_texts import good, mixed

pytestmark = pytest.mark.crash

ALL = os.environ.get("APOLLOD_CRASH_POINTS") == "all"
POINTS = [
    "effect.MeasureQuality.after", "effect.PlanRollback.before", "effect.PlanRollback.after",
    "effect.ReplayWindow.before", "effect.ReplayWindow.after", "effect.ReplayWindow.after:4", "effect.EndSearch.before",
    "effect.RunStep.before", "effect.RunStep.after:5",
]  # fmt: skip
"""In the order in which an incident passes them: each life dies at the next. What a search leaves behind goes with the
daemon, so nobody ends it a second time."""
DIES_S = 300.0


@pytest.mark.skipif(not ALL, reason="APOLLOD_CRASH_POINTS=all (make crash)")
@pytest.mark.timeout(1800)
def test_an_incident_ends_in_the_same_wherever_it_is_killed(tmp_path: Path) -> None:
    rng = random.Random("0 facts")
    first, (second, places) = good(rng, 60), mixed(rng, "facts", 60, 20)
    second += good(rng, 10)
    with Life(2e-3, 1000, tmp_path / "life") as life:
        life.learn("good.jsonl", first)
        accepted = life.daemon.status()["queue"]["accepted"]
        life.daemon.stop()
        life.daemon.drop("mixed.jsonl", *(json.dumps(one) for one in second))
        for number, point in enumerate(POINTS):
            (once := tmp_path / f"once{number}").mkdir()
            life.daemon.start({VARIABLE: point, ONCE: str(once)})
            assert life.daemon.process is not None
            assert life.daemon.process.wait(DIES_S) == -signal.SIGKILL, point
            assert os.listdir(once) == [point.partition(":")[0]]
            say(f"{point}: {life.rows('SELECT count(*) FROM events')[0][0]} events")
        life.start()
        life.wait("mixed.jsonl", accepted + 40)
        found = life.verdict("mixed.jsonl", [place + 1 for place in places])
    say(str(found))
    assert (found["alarms"], found["verdict"], found["precision"], found["recall"]) == (1, "named", 1.0, 1.0)
    assert found["same_fingerprint"] == 1.0
