"""Make a golden journal with the code of this checkout: real daemons, a real engine and trainer, a model built from a
seed.

usage: PYTHONPATH=tests:. python -m golden.make NAME        (for example v0.1.0; takes some five minutes)

Everything lives in ROOT meanwhile, so that no path of a person's machine gets into the journal. Run it on a clean
checkout.
"""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from golden.answers import answers
from support.daemon import VLLM, Daemon, chat_line

ROOT = Path("/var/tmp/apollod-golden")
HERE = Path(__file__).parent
BYTES_MAX = 300_000
CONFIG = """\
[trainer]
threads = 1
seed = 20
"""
FAILING_CHECKPOINT = {"APOLLOD_FAILPOINT": "trainer.checkpoint.before-rename", "APOLLOD_FAILPOINT_ONCE": str(ROOT)}
FAILING_STEP = {
    "APOLLOD_FAILPOINT": "trainer.step.begun"
}  # every trainer dies in its first step, until the step is given up


def lines(*numbers: int) -> list[str]:
    """Examples that are learned."""
    return [
        chat_line(f"What is the colour of stone number {n}?", f"Stone number {n} is {'red' if n % 2 else 'blue'}.")
        for n in numbers
    ]


def first_life(daemon: Daemon) -> None:
    """Everything that an inbox may hold, three checkpoints of which two are kept, a pause, both children killed, a
    clean end."""
    daemon.start().wait_ready()
    too_long = chat_line("What is long?", "very " * 600)
    daemon.drop(
        "a.jsonl",
        *lines(1, 2, 3),
        "no json",
        *lines(1),
        too_long,
        json.dumps({"text": "A line of plain text about a stone."}),
    )
    daemon.wait_learned(4)
    daemon.ctl("checkpoint")
    daemon.ctl("pause")
    more = daemon.root / "more.jsonl"
    more.write_text("".join(f"{line}\n" for line in [*lines(4, 5), '{"unknown": 1}', *lines(2)]))
    daemon.ctl("submit", str(more))
    daemon.ctl("resume")
    daemon.wait_learned(6)
    kill(daemon, "trainer")
    daemon.drop("b.jsonl", *lines(6, 7))
    daemon.wait_learned(8)
    daemon.ctl("checkpoint")
    daemon.drop("c.jsonl", *lines(8))
    daemon.wait_learned(9)
    kill(daemon, "engine")
    daemon.drop("d.jsonl", *lines(9))
    daemon.wait_learned(10)
    daemon.stop()


def second_life(daemon: Daemon) -> None:
    """A trainer that dies while it writes a checkpoint; the next one runs the steps since again."""
    daemon.start(FAILING_CHECKPOINT).wait_ready()
    daemon.drop("e.jsonl", *lines(10))
    daemon.wait_learned(11)
    assert daemon.ctl("checkpoint", check=False).returncode == 1
    daemon.wait_ready()
    daemon.ctl("checkpoint")  # by itself it would wait for a minute after the failure
    daemon.stop()


def third_life(daemon: Daemon) -> None:
    """A step over which three trainers die, and the end of the daemon itself."""
    daemon.start(FAILING_STEP).wait_ready()
    daemon.drop("f.jsonl", *lines(11))
    daemon.wait(lambda s: s["queue"]["held"] == 1, "the step to be given up")
    daemon.wait_ready()
    daemon.kill()


def fourth_life(daemon: Daemon) -> None:
    """Somebody names another model."""
    right = daemon.config.read_text()
    daemon.config.write_text(right.replace(f'path = "{ROOT}/model"', f'path = "{ROOT}/other"'))
    daemon.start()
    daemon.wait(lambda s: "belongs to the model" in s["error"], "the halt")
    daemon.wait(lambda s: s["engine"]["ready"], "the engine")
    daemon.stop()
    daemon.config.write_text(right)


def fifth_life(daemon: Daemon) -> None:
    """It goes on, though somebody removed what was kept of the base model."""
    for kept in (daemon.root / "state").glob("base*"):
        shutil.rmtree(kept)
    daemon.start().wait_ready()
    daemon.drop("g.jsonl", *lines(12, 13))
    daemon.wait_learned(13)
    daemon.stop()


def kill(daemon: Daemon, child: str) -> None:
    """SIGKILL, and until its successor is ready."""
    pid = daemon.status()[child]["pid"]
    os.kill(pid, signal.SIGKILL)
    daemon.wait(lambda s: s[child]["ready"] and s[child]["pid"] != pid and s["trainer"]["ready"], f"another {child}")


def main(name: str) -> None:
    """Live, then keep the journal and what it says."""
    shutil.rmtree(ROOT, ignore_errors=True)
    ROOT.mkdir(parents=True)
    model = ROOT / "model"
    subprocess.run([sys.executable, "-m", "apollod.demo.tiny_model", str(model), "--kind", "random"], check=True)
    daemon = Daemon(ROOT, model, engine=VLLM, as_users_do=True)
    text = daemon.config.read_text()
    daemon.config.write_text(text.replace("keep = 3", "keep = 2").replace("[trainer]\n", CONFIG))
    try:
        for life in (first_life, second_life, third_life, fourth_life, fifth_life):
            life(daemon)
    finally:
        if daemon.alive():
            daemon.kill()
    journal = HERE / f"{name}.db"
    journal.unlink(missing_ok=True)
    with closing(sqlite3.connect(daemon.journal)) as db:
        db.execute("DELETE FROM snapshots")  # of no use to other code than this
        db.commit()
        db.execute("VACUUM INTO ?", (str(journal),))
    assert journal.stat().st_size < BYTES_MAX
    said = answers(journal)
    (HERE / f"{name}.json").write_text(f"{json.dumps(said, indent=1, sort_keys=True)}\n")
    sys.stderr.write(
        f"{journal}: {journal.stat().st_size} bytes, {said['events']} events of {len(said['kinds'])} kinds\n"
    )
    shutil.rmtree(ROOT)


if __name__ == "__main__":
    main(sys.argv[1])
