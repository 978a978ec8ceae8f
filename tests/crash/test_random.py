"""SIGKILL at random instants under load. APOLLOD_CRASH_KILLS kills in all (5; `make crash`: 300), seed
APOLLOD_CRASH_SEED."""

import os
import random
import signal
import time
from pathlib import Path

import pytest
from support.daemon import CRASH_ENGINE, SOON, Daemon, dead_within, group_of
from support.fork_server import said
from support.invariants import check_replay, check_stopped, journal_of, open_intents_of, say, taken, wait_up
from support.load import Load, check_intake

from apollod.adapters.journal import journal_reader
from apollod.core import events as ev
from apollod.wire import messages as msg

pytestmark = pytest.mark.crash

KILLS = int(os.environ.get("APOLLOD_CRASH_KILLS", "5"))
FULL = max(2, KILLS * 40 // 300)  # with engine and trainer; the others need none and are cheap
SEED = int(os.environ.get("APOLLOD_CRASH_SEED", "1"))
VICTIMS = ["supervisor", "engine", "engine core", "trainer", "trainer"]
GONE_S = 10.0
DRAIN_S = 300.0


@pytest.mark.timeout(1200)
def test_the_supervisor_killed_at_random_while_lines_come_in(tmp_path):
    """No engine is needed to take lines: training is halted from the start by a model that is not the journal's."""
    chance = random.Random(SEED)
    said("pass")  # until there is a process to fork daemons from, which is no part of a start
    began = time.monotonic()
    daemon = Daemon(tmp_path, tmp_path / "one").start()
    other = {"APOLLOD_MODEL__PATH": str(tmp_path / "another")}
    load = Load(daemon.inbox, SEED)
    try:
        daemon.wait(lambda s: s["error"], "the model to be refused", 180)
        up_s = (
            time.monotonic() - began
        )  # on a busy machine a start takes longer, and a life has to have something in it
        daemon.kill()
        load.start()
        before = 0
        for number in range(KILLS - FULL):
            daemon.start(other)
            time.sleep(chance.uniform(0.3, 3.0) * up_s)
            assert daemon.alive(), daemon.log()[-2000:]
            daemon.kill()
            last, kind = journal_reader.query(
                daemon.journal, "SELECT seq, kind FROM events ORDER BY seq DESC LIMIT 1"
            ).rows[0]
            up_s *= 1.0 if last > before else 2.0  # the machine is busier than it was at the first start
            before = last
            say(
                f"intake {number + 1}/{KILLS - FULL} (seed {SEED}): supervisor killed after event {last} {kind}, "
                f"{load.total} lines"
            )
        load.stop()
        daemon.start(other)
        daemon.wait(lambda s: taken(s) >= load.total, f"all of {load.total} lines", DRAIN_S)
        daemon.stop()
    finally:
        daemon.kill()
    events = check_stopped(daemon)
    check_intake(events, load)
    lives = sum(isinstance(e, ev.DaemonStarted) for e in events)
    say(f"intake: {load.total} lines, {lives} of {KILLS - FULL + 2} lives recorded a start")
    assert lives > (KILLS - FULL) // 2, "the kills came before anything could happen"


@pytest.mark.timeout(5400)
def test_every_process_killed_at_random_while_it_learns(tiny_model, tmp_path):
    """Supervisor, engine and trainer, also while they start; then the journal, run again offline, has the same
    weights."""
    chance = random.Random(SEED)
    often = {"APOLLOD_CHECKPOINT__DELAY_S": "1", **SOON}
    daemon = Daemon(tmp_path, tiny_model, engine=CRASH_ENGINE).start(often)
    load = Load(daemon.inbox, SEED + 1, period_s=2.0).start()
    victims = [victim for _ in range(0, FULL, len(VICTIMS)) for victim in chance.sample(VICTIMS, len(VICTIMS))]
    try:
        wait_up(daemon, lambda s: s["step"] > 0, "first steps")
        for number, victim in enumerate(victims[:FULL]):
            if chance.random() < 0.6:
                steps = wait_up(daemon, bool, "an answer")["step"]
                wait_up(daemon, lambda s, steps=steps: s["step"] > steps, "learning")
            time.sleep(chance.uniform(0.0, 3.0))
            say(f"full {number + 1}/{FULL} (seed {SEED}): {kill(daemon, victim, often)}")
        load.stop()
        last = wait_up(
            daemon,
            lambda s: taken(s) >= load.total and s["state"] == "serving" and window_closed(daemon),
            "the queue's end",
        )
        daemon.stop()
    finally:
        daemon.kill()
    events = check_stopped(daemon)
    check_intake(events, load)
    assert not [e for e in events if isinstance(e, ev.TrainingHalted)]
    completed = [e for e in events if isinstance(e, ev.StepCompleted)]
    assert completed[-1].fingerprint == last["weights"]["fingerprint"]
    say(
        f"full: {load.total} lines, {len(completed)} steps, {check_replay(daemon)} of them run again offline with "
        "the same bits"
    )


def window_closed(daemon: Daemon) -> bool:
    """After a kill amid the last step its window is closed only when the anchors that steps wait for are asked for."""
    kinds = journal_reader.query(daemon.journal, "SELECT kind FROM events WHERE kind LIKE 'window.%' ORDER BY seq").rows
    return bool(kinds) and kinds[-1][0] == "window.closed"


def kill(daemon: Daemon, victim: str, env: dict[str, str]) -> str:
    """SIGKILL a child's process group, the engine's core alone, or (also where that child is not up) the supervisor,
    which is started again. Returns what was killed, and which intents are open then for somebody to settle."""
    status = daemon.ask(msg.StatusRequest())
    pids = {role: status[role]["pid"] for role in ("engine", "trainer")} if status else {}
    role = victim.split()[0]
    if group := group_of(pids[role]) if pids.get(role) else []:
        if role == victim:
            os.killpg(pids[role], signal.SIGKILL)
        else:
            os.kill(max(group), signal.SIGKILL)
        return f"{victim} killed, {told(daemon)}"
    daemon.kill()
    assert not dead_within([pid for pid in pids.values() if pid], GONE_S), "children outlived a killed supervisor"
    said = f"supervisor killed, {told(daemon)}"
    daemon.start(env)
    return said


def told(daemon: Daemon) -> str:
    if not Path(daemon.journal).exists():
        return "no journal yet"
    events = journal_of(daemon)
    return (
        f"{len(events)} events, open: "
        f"{', '.join(f'{kind} {value or str()}'.strip() for kind, value in open_intents_of(events))}"
    )
