"""Back to earlier weights in a running daemon: the recorded bits, the same engine, and what was learned stays away.

That the served model forgets, too, is shown with vLLM in test_daemon."""

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands import ran
from support.daemon import Daemon, chat_line
from support.fingerprints import file_fingerprint
from support.invariants import check_replay, check_stopped, journal_of

from apollod.core import events as ev
from apollod.trainer.bind.live_fingerprint import format as format_fingerprint

HOOK = """
import json, os, sys
with open(sys.argv[1], "a") as out:
    ours = {name: value for name, value in os.environ.items() if name.startswith(("APOLLOD_C", "APOLLOD_M"))}
    out.write(json.dumps(ours) + "\\n")
sys.exit("no route to host" if os.path.exists(sys.argv[1] + ".fails") else 0)
"""


@pytest.fixture(scope="module")
def daemon(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    root = tmp_path_factory.mktemp("rollback")
    (root / "hook.py").write_text(HOOK)
    running = Daemon(root, tiny_model)
    command = json.dumps([sys.executable, str(root / "hook.py"), str(root / "hooked")])
    running.start({"APOLLOD_CHECKPOINT__HOOK": command, "APOLLOD_CHECKPOINT__KEEP": "20"})
    try:
        running.wait_ready()
        yield running
    finally:
        running.kill()


def learn(daemon: Daemon, name: str, count: int = 1) -> dict:
    before = daemon.status()["queue"]["trained"]
    daemon.drop(f"{name}.jsonl", *[chat_line(f"what is {name}?" + " " * i, f"it is {name} {i}.") for i in range(count)])
    return daemon.wait_learned(before + count)


def fingerprint(daemon: Daemon) -> str:
    return daemon.status()["weights"]["fingerprint"]


def recorded(daemon: Daemon, step: int) -> str:
    """What the journal says of a step's weights."""
    return str(daemon.query(f"SELECT fingerprint FROM steps WHERE step = {step}")[0][0])


def on_disk(daemon: Daemon) -> str:
    files = sorted(daemon.model.glob("*.safetensors"))
    return format_fingerprint(sum(file_fingerprint(file) for file in files) % 2**64)


def forget(daemon: Daemon) -> None:
    """Everything into a checkpoint, and another trainer: it has no step in memory that it could undo."""
    daemon.ctl("checkpoint")
    before = daemon.status()["trainer"]
    os.kill(before["pid"], signal.SIGKILL)
    daemon.wait(lambda s: s["trainer"]["restarts"] > before["restarts"] and s["trainer"]["ready"], "another trainer")


def back(daemon: Daemon, to: str) -> dict:
    done = json.loads(daemon.ctl("rollback", "--to", to, "--json").stdout)
    assert daemon.status()["step"] == done["step"] and fingerprint(daemon) == done["fingerprint"]
    return done


def test_a_step_without_a_checkpoint_is_undone_in_memory(daemon: Daemon) -> None:
    engine = learn(daemon, "good", 2)["engine"]
    daemon.ctl("checkpoint")
    step, was = daemon.status()["step"], fingerprint(daemon)
    learn(daemon, "bad", 4)
    done = back(daemon, str(step))
    assert (
        done["fingerprint"] == was
        and done["how"] == "memory"
        and done["from"] == step + 4
        and len(done["examples"]) == 4
    )
    status = daemon.status()
    assert status["weights"]["served"] == step, "it was answered before the engine was told"
    assert status["engine"]["pid"] == engine["pid"] and status["engine"]["restarts"] == 0
    assert status["queue"]["undone"] == 4 and status["rollback"] is None
    assert status["undo"]["bytes"] >= 1 << 30, 'undo_bytes = "auto", of a small model'


def test_the_next_step_goes_on_from_there_and_its_bits_are_those_of_a_replay(daemon: Daemon) -> None:
    before = daemon.status()
    after = learn(daemon, "next")
    (step, parent) = daemon.query("SELECT step, parent FROM steps ORDER BY step DESC LIMIT 1")[0]
    assert step == after["step"] and parent == before["step"] and step > parent + 1, "numbers are not used again"


def test_what_was_taken_back_waits_until_it_is_asked_for(daemon: Daemon) -> None:
    undone = [row[0] for row in daemon.query("SELECT id FROM examples WHERE state = 'undone' ORDER BY seq")]
    assert len(undone) == 4
    shutil.copy(daemon.inbox / "bad.jsonl", daemon.inbox / "again.jsonl")
    duplicates = daemon.wait(lambda s: s["queue"]["duplicates"] >= 4, "the copy to be read")["queue"]
    assert duplicates["undone"] == 4 and not duplicates["pending"]
    assert daemon.ctl("relearn", undone[0]).stdout.startswith("1 ")
    daemon.wait(
        lambda s: s["queue"]["undone"] == 3 and not s["queue"]["pending"] and s["state"] == "serving",
        "it to be learned",
    )
    assert daemon.query(f"SELECT state FROM examples WHERE id = '{undone[0]}'") == [("trained",)]
    refused = daemon.ctl("relearn", undone[0], check=False)
    assert refused.returncode == 1 and "was not taken back" in refused.stderr


def test_to_a_checkpoint_by_its_directory_after_the_trainer_was_restarted(daemon: Daemon) -> None:
    first = daemon.query("SELECT path, step FROM checkpoints WHERE state = 'committed' ORDER BY seq LIMIT 1")[0]
    forget(daemon)
    done = back(daemon, first[0])
    assert (done["step"], done["how"], done["replayed"]) == (first[1], "checkpoint", 0)
    assert done["fingerprint"] == recorded(daemon, first[1])
    daemon.wait(
        lambda s: s["checkpoint"]["fingerprint"] == done["fingerprint"], "a checkpoint of what is served now", 60
    )
    assert on_disk(daemon) == done["fingerprint"], "the model directory does not keep what was taken back"


def test_between_checkpoints_steps_are_run_again(daemon: Daemon) -> None:
    start = learn(daemon, "many", 5)["step"] - 4
    forget(daemon)
    done = back(daemon, str(start + 2))
    assert done["how"] == "checkpoint" and done["replayed"] == 3 and done["fingerprint"] == recorded(daemon, start + 2)


def test_to_the_untrained_weights_and_what_there_is_no_way_to(daemon: Daemon) -> None:
    base = daemon.status()["weights"]["base_fingerprint"]
    for wrong, reason in (("99999", "no step 99999"), ("-3", "neither a step"), ("latest", "neither a step")):
        refused = daemon.ctl("rollback", f"--to={wrong}", check=False)
        assert refused.returncode in (1, 2) and reason in refused.stderr and refused.stderr.count("\n") == 1
    assert back(daemon, "0")["fingerprint"] == base
    refused = daemon.ctl("rollback", "--to", "3", check=False)
    assert refused.returncode == 1 and "step 3" in refused.stderr
    daemon.wait(
        lambda s: s["checkpoint"]["fingerprint"] == base and s["state"] == "serving", "a checkpoint of the base", 60
    )
    learn(daemon, "anew")
    assert daemon.query("SELECT parent FROM steps ORDER BY step DESC LIMIT 1") == [(0,)]


def test_the_hook_saw_every_checkpoint_and_its_failure_stops_nothing(daemon: Daemon) -> None:
    seen = [json.loads(line) for line in (daemon.root / "hooked").read_text().splitlines()]
    assert [one["APOLLOD_CHECKPOINT_PATH"] for one in seen] == [
        path for (path,) in daemon.query("SELECT path FROM checkpoints WHERE state = 'committed' ORDER BY seq")
    ]
    assert seen[0]["APOLLOD_MODEL_DIR"] == str(daemon.model) and len(seen[0]["APOLLOD_CHECKPOINT_FINGERPRINT"]) == 16
    (daemon.root / "hooked.fails").touch()
    daemon.ctl("checkpoint")
    daemon.wait(lambda _: any(isinstance(e, ev.HookFailed) for e in journal_of(daemon)), "the failure to be told", 180)
    failed = next(e for e in journal_of(daemon) if isinstance(e, ev.HookFailed))
    assert "ended with 1: no route to host" in failed.reason and daemon.status()["state"] == "serving"


def test_live_weights_are_synced_by_the_tool_which_finds_the_daemon_by_itself(daemon: Daemon) -> None:
    learn(daemon, "tool")
    tool = "apollod.cli.checkpoint_tool"
    done = ran("sync", "--model-dir", daemon.model, module=tool)
    assert done.returncode == 0, done.stderr
    assert on_disk(daemon) == fingerprint(daemon)
    found = ran("fingerprint", "--model-dir", daemon.model, module=tool)
    assert found.stdout.strip() == fingerprint(daemon)


def test_all_of_it_is_proved_by_a_replay_and_a_restart_comes_back_there(daemon: Daemon) -> None:
    was = learn(daemon, "last", 2)["weights"]["fingerprint"]
    daemon.kill()
    daemon.start()
    daemon.wait_ready()
    assert fingerprint(daemon) == was
    daemon.stop()
    assert on_disk(daemon) == was
    events = check_stopped(daemon)
    assert (
        sum(isinstance(e, ev.RollbackStarted) for e in events)
        == sum(isinstance(e, ev.RollbackCompleted) for e in events)
        == 4
    )
    assert check_replay(daemon) == len(daemon.query("SELECT 1 FROM steps WHERE NOT undone"))
