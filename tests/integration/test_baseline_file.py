"""The file with what the baseline's model thought of every token, beside the journal of a whole daemon: gone, back, and
those that nobody needs any more."""

from array import array
from pathlib import Path
from typing import Any

import pytest
from support.daemon import Daemon
from support.journals import write

from apollod.adapters.journal import blobs
from apollod.core import events as ev
from apollod.core.settings import Settings, TrainerSettings
from apollod.curation.probes.references import Reference, write_references
from apollod.wire.teacher import Teacher, write_teacher

TEACHER = Teacher(array("I", [7]), array("I", [7, 9]), array("f", [-0.5, -1.5]), 2, 4)
FIRST, SECOND, ORPHAN = (write_references({"a": Reference((n,), TEACHER)}) for n in (1, 2, 3))


def measured(state: Path, model: Path, *references: str) -> None:
    """The journal of a life in which the baseline was measured; nothing was learned in it."""
    runs: list[ev.Event] = []
    for number, one in enumerate(references, 1):
        runs += [
            ev.QualityRequested(number, "baseline", 0),
            ev.QualityMeasured(number, "baseline", 0, "p", {"facts.passed": {"a": 1.0}}, references=one),
        ]
    settings = Settings(model_path=str(model), trainer=TrainerSettings())
    write(state / "journal.db", [ev.DaemonStarted(1, "0", settings, state_dir=str(state)), *runs])


@pytest.mark.slow
def test_a_daemon_without_it_says_so_once_and_keeps_the_others_until_it_is_back(
    tmp_path: Path, tiny_model: Path
) -> None:
    state = tmp_path / "state"
    there = state / blobs.NAME
    first, second, orphan = (blobs.keep(there, one) for one in (FIRST, SECOND, ORPHAN))
    teacher = blobs.keep(there, write_teacher(TEACHER))
    measured(state, tiny_model, first, second)
    half = there / f".{second}.99999999"
    half.write_bytes(b"h")
    (there / second).unlink()
    daemon = Daemon(tmp_path, tiny_model, "[quality]\nevery_steps = 100\n").start()
    try:
        lost: Any = daemon.wait_ready()["quality"]["references_lost"]
        assert str(there / second) in lost and "apollod ctl quality baseline" in lost
        assert {path.name for path in there.iterdir()} == {first, orphan, teacher}
        assert daemon.query("SELECT key, body ->> '$.reason' FROM events WHERE kind = 'quality.references_lost'") == [
            (second, lost)
        ]
        verified = daemon.ctl("journal", "verify", check=False)
        assert verified.returncode == 1 and second in verified.stdout
        assert not daemon.status()["quality"]["incidents"]
    finally:
        daemon.stop()
    said = [line for line in daemon.log().splitlines() if second in line]
    assert len(said) == 1 and "quality.references_lost" in said[0] and "Traceback" not in daemon.log()

    blobs.keep(there, SECOND)
    daemon.start()
    try:
        assert daemon.wait_ready()["quality"]["references_lost"] == ""
        assert {path.name for path in there.iterdir()} == {second, teacher}
        assert daemon.ctl("journal", "verify").returncode == 0
    finally:
        daemon.stop()
