"""`apollod ctl journal archive`: a proved copy, and a journal that goes on from it; the old one or the new one,
whatever is killed."""

import json
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.daemon import Daemon, chat_line
from support.journals import AT, BASE, EXAMPLES, A, B, C, D, E, F, accepted, completed, edit, opened, shell, write

from apollod.adapters.journal import journal_reader, verification
from apollod.adapters.journal.journal_file import growth
from apollod.adapters.system.service import Lock
from apollod.cli.main import main
from apollod.core import events as ev
from apollod.core.settings import Settings
from apollod.failpoints import VARIABLE
from apollod.wire import messages as msg


def story(root: Path) -> list[ev.Event]:
    """A learned in step 1, B rejected, C and D withdrawn, E failed in step 2, F waits and is tokenised."""
    first = [accepted(example, number) for number, example in enumerate(EXAMPLES, 1)]
    encoded = [ev.ExampleEncoded(example=one, tokens=9, targets=4, cut=0, digest="d") for one in (C, D, E, F)]
    checkpoint = str(root / "checkpoints" / "step-00000001")
    return [
        ev.DaemonStarted(pid=1, version_name="x", settings=Settings(model_path="/m"), state_dir=str(root)),
        ev.TrainerBound(pid=11, fingerprint=BASE, parameters=2, elements=10),
        ev.SourceDiscovered(source="src", path="/in/a.jsonl"),
        *first[:3],
        ev.SourceConsumed(
            source="src",
            path="/in/a.jsonl",
            offset=3,
            line=3,
            accepted=3,
            duplicates=0,
            rejected=0,
            counts={"dropped: short": 2, "unknown: x": 1},
        ),
        *first[3:],
        ev.SourceConsumed(
            source="src",
            path="/in/a.jsonl",
            offset=6,
            line=6,
            accepted=3,
            duplicates=0,
            rejected=0,
            counts={"dropped: short": 3},
        ),
        ev.ExampleEncoded(example=A, tokens=9, targets=4, cut=0, digest="d"),
        ev.ExampleRejected(example=B, reason="no target tokens"),
        *encoded,
        ev.ExampleWithdrawn(examples=(C, D), by="ctl"),
        *completed(1, 0, A),
        ev.CheckpointCommitted(step=1, path=checkpoint, fingerprint=f"{1:016x}", bytes=7, seconds=0.5),
        ev.StepStarted(step=2, parent=1, example=E, digest="d", lr=1e-5, window=1),
        ev.StepFailed(step=2, example=E, reason="out of memory", attempts=3),
        ev.ShutdownRequested(reason="SIGTERM"),
        ev.DaemonStopped(step=1, fingerprint=f"{1:016x}"),
    ]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A state directory with a configuration beside it."""
    state = tmp_path / "state"
    (state / "checkpoints" / "step-00000001").mkdir(parents=True)
    (tmp_path / "apollod.toml").write_text(
        f'[state]\ndir = "{state}"\n[model]\npath = "/m"\n[inbox]\npath = "{tmp_path / "inbox"}"\n'
    )
    write(state / "journal.db", story(state))
    return tmp_path


def arguments(root: Path, *more: str) -> list[str]:
    return ["ctl", "journal", "archive", str(root / "old.db"), "--config", str(root / "apollod.toml"), *more]


def verify(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = main(["ctl", "journal", "verify", "--json", "--file", str(path), *options])
    return code, json.loads(capsys.readouterr().out)


def head(path: Path) -> tuple[int, str]:
    chain = journal_reader.proved(path)
    assert chain.broken is None
    return chain.seq, chain.hash.hex()


def test_the_old_journal_is_a_proved_copy_and_the_new_one_names_it(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal, copy = root / "state" / "journal.db", root / "old.db"
    before, rows = head(journal), journal_reader.query(journal, "SELECT * FROM events ORDER BY seq").rows
    assert main(arguments(root, "--json")) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["events"], told["head_hash"], told["archive"]) == (*before, str(copy))
    assert journal_reader.query(copy, "SELECT * FROM events ORDER BY seq").rows == rows
    assert stat.S_IMODE(copy.stat().st_mode) == 0o400
    first = journal_reader.continued(journal)
    assert first == ev.JournalContinued(
        archive=str(copy), events=before[0], head_hash=before[1], step=1, fingerprint=f"{1:016x}",
        checkpoint=str(root / "state" / "checkpoints" / "step-00000001"), last_step=2,
    )  # fmt: skip
    assert (told["carried"], told["known"], told["step"]) == (head(journal)[0], 6, 1)
    assert sorted(file.name for file in (root / "state").iterdir()) == ["apollod.lock", "checkpoints", "journal.db"]
    assert sorted(root.glob("old*")) == [copy]
    code, answer = verify(journal, capsys, "--archive", str(copy), "--expect", before[1])
    assert code == 0 and answer["ok"] and answer["misfit"] == "" and answer["archive"]["head_hash"] == before[1]


def test_views_and_questions_know_what_was_carried_over_and_where_the_rest_is(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal, copy = root / "state" / "journal.db", root / "old.db"
    sources = journal_reader.query(journal, "SELECT source, path, offset, line, accepted FROM sources").rows
    assert main(arguments(root)) == 0
    assert journal_reader.query(journal, "SELECT source, path, offset, line, accepted FROM sources").rows == sources
    sql = "SELECT body ->> '$.counts' FROM events WHERE kind = 'source.consumed'"
    ((counts,),) = journal_reader.query(journal, sql).rows
    assert json.loads(counts) == {"dropped: short": 5, "unknown: x": 1}
    found = dict(journal_reader.query(journal, "SELECT id, state FROM examples").rows)
    assert found == {C: "withdrawn", D: "withdrawn", E: "held", F: "pending"}
    assert {id_ for (id_,) in journal_reader.query(journal, "SELECT id FROM known_examples").rows} == set(EXAMPLES)
    for question in (["why", "1"], ["why", "2"], ["why", A[:8]], ["example", "show", B], ["replay", "--at", "1"],
                     ["replay", "--at", "2001-01-01"]):  # fmt: skip
        capsys.readouterr()
        assert main(["ctl", *question, "--file", str(journal)]) == 1, question
        refused = capsys.readouterr().err
        assert f"--file {copy}" in refused or "no event is as old" in refused, refused
    assert main(["replay", "--journal", str(journal)]) == 1
    assert f"the journal begins at step 1, what was before is in the archive {copy}" in capsys.readouterr().err
    assert main(["ctl", "why", A, "--file", str(copy)]) == 0
    code, answer = verify(journal, capsys, "--expect", "ab" * 32)
    assert code == 1 and answer["expected"] is None
    assert growth(journal) is None


def test_an_index_that_is_made_anew_still_knows_what_the_archive_accepted(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = root / "state" / "journal.db"
    assert main(arguments(root)) == 0
    with shell(journal) as db:
        db.execute("DELETE FROM example_index WHERE id = ?", (A,))
    assert "carried over" in verify(journal, capsys)[1]["derived"]
    with shell(journal) as db:
        db.executescript(verification.EMPTY_INDEX)
    assert {id_ for (id_,) in journal_reader.query(journal, "SELECT id FROM known_examples").rows} == set(EXAMPLES)

    async def known() -> set[str]:
        async with opened(journal) as one:
            return await one.known([*EXAMPLES, "f" * 32])

    assert anyio.run(known) == set(EXAMPLES)


def test_a_signal_of_an_archive_is_not_recorded_again(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also after a second archive, and with an index that is made anew."""
    journal = root / "state" / "journal.db"
    corrected = ev.SignalFlagged("ab12", "correction", "correction", 0.8, A, "src", 2)

    async def flagged(*new: ev.Event) -> set[str]:
        async with opened(journal) as one:
            if new:
                await one.append(list(new), AT)
            return await one.flagged(["ab12", "other"])

    anyio.run(flagged, corrected)
    assert main(arguments(root)) == 0
    again = arguments(root)
    again[3] = str(root / "older.db")
    assert main(again) == 0
    assert anyio.run(flagged) == {"ab12"}
    with shell(journal) as db:
        db.execute("DELETE FROM signal_index")
    assert "signal_index" in verify(journal, capsys)[1]["derived"]
    with shell(journal) as db:
        db.executescript("DELETE FROM signal_index; UPDATE meta SET value = '0' WHERE key = 'signals_indexed_seq'")
    assert anyio.run(flagged) == {"ab12"} and verify(journal, capsys)[1]["ok"]


@pytest.mark.parametrize("point", ["archive.copied", "archive.begun"])
def test_killed_on_the_way_it_is_the_old_journal_and_the_next_attempt_ends_it(
    root: Path, point: str, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = root / "state" / "journal.db"
    before = head(journal)
    command = [sys.executable, "-m", "apollod", *arguments(root)]
    died = subprocess.run(command, env={**os.environ, VARIABLE: point}, capture_output=True, check=False)
    assert died.returncode == -signal.SIGKILL and point.encode() in died.stderr
    assert head(journal) == before == head(root / "old.db")
    assert main(arguments(root)) == 0
    assert verify(journal, capsys, "--archive", str(root / "old.db"))[0] == 0
    assert sorted(file.name for file in (root / "state").iterdir()) == ["apollod.lock", "checkpoints", "journal.db"]


def test_it_can_be_archived_again(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal, second = root / "state" / "journal.db", root / "second"
    assert main(arguments(root)) == 0
    begun = head(journal)
    second.mkdir()
    again = ["ctl", "journal", "archive", str(second), "--config", str(root / "apollod.toml")]
    assert main(again) == 0
    (copy,) = second.iterdir()
    assert copy.name == "journal-00000001.db" and head(copy) == begun
    assert verify(journal, capsys, "--archive", str(copy))[0] == 0
    code, answer = verify(journal, capsys, "--archive", str(root / "old.db"))
    assert code == 1 and "goes on from an archive of" in answer["misfit"]
    assert {id_ for (id_,) in journal_reader.query(journal, "SELECT id FROM known_examples").rows} == set(EXAMPLES)


def refused(root: Path, capsys: pytest.CaptureFixture[str]) -> str:
    journal = root / "state" / "journal.db"
    before = journal.read_bytes()
    assert main(arguments(root)) == 1
    assert journal.read_bytes() == before and not (root / "state" / "journal.db.begun").exists()
    return capsys.readouterr().err


def test_what_cannot_be_archived_is_left_as_it_is(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal, checkpoints = root / "state" / "journal.db", root / "state" / "checkpoints"
    lock = Lock(root / "state" / "apollod.lock")
    assert "already running" in refused(root, capsys)
    lock.release()
    (root / "old.db").write_bytes(journal.read_bytes()[:4096])
    assert "old.db" in refused(root, capsys)
    (root / "old.db").unlink()
    checkpoints.rename(root / "elsewhere")
    assert "is not there" in refused(root, capsys)
    (root / "elsewhere").rename(checkpoints)
    assert not (root / "old.db").exists()
    later = [*story(root / "state")[:-2], *completed(3, 1, F)]
    journal.unlink()
    write(journal, later)
    assert "the weights are of step 3, the newest checkpoint is of step 1" in refused(root, capsys)
    edit(journal, "UPDATE events SET at_ns = 1 WHERE seq = 2")
    assert "event 2 is missing or does not match its hash" in refused(root, capsys)


@pytest.mark.parametrize("name", ["journal.db", "journal.db.begun", "journal.db-wal", "link.db", "other.db"])
def test_the_journal_is_never_its_own_archive(root: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nor lies the copy where the next one is made: the whole history would be gone."""
    journal = root / "state" / "journal.db"
    before = head(journal)
    (root / "state" / "link.db").symlink_to(journal)
    os.link(journal, root / "state" / "other.db")
    command = ["ctl", "journal", "archive", str(root / "state" / name), "--config", str(root / "apollod.toml")]
    assert main(command) == 1
    assert "is the journal itself" in capsys.readouterr().err
    assert head(journal) == before


def test_a_copy_that_was_changed_or_an_index_that_lacks_an_example_does_not_fit(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal, copy = root / "state" / "journal.db", root / "old.db"
    assert main(arguments(root)) == 0
    forged = root / "forged.db"
    shutil.copy(copy, forged)
    forged.chmod(0o600)
    edit(forged, f"UPDATE events SET body = replace(body, '{A}', '{B}') WHERE seq = 4")
    assert "broken at event 4" in verify(journal, capsys, "--archive", str(forged))[1]["misfit"]
    write(root / "first.db", story(root / "state"))
    assert "of no archive" in verify(root / "first.db", capsys, "--archive", str(copy))[1]["misfit"]


def test_growth_counts_from_the_archive_on(root: Path) -> None:
    journal = root / "state" / "journal.db"
    assert main(arguments(root)) == 0
    with sqlite3.connect(journal) as db:
        ((size,),) = db.execute("SELECT value FROM meta WHERE key = 'carried_bytes'").fetchall()
    db.close()
    assert int(size) <= journal.stat().st_size < int(size) + 65536


def test_a_daemon_goes_on_with_the_same_bits_and_learns_no_line_twice(tiny_model: Path, tmp_path: Path) -> None:
    """Compared with what the daemon did that was not archived, from the same backup of its journal."""
    daemon, copy, backup = Daemon(tmp_path / "d", tiny_model), tmp_path / "old.db", tmp_path / "backup.db"
    lines = [chat_line(f"question {n}?", f"answer {n}.") for n in range(3)]
    try:
        daemon.start().wait_ready()
        daemon.drop("a.jsonl", *lines[:2])
        daemon.wait_learned(2)
        daemon.request(msg.CheckpointRequest(), 60)
        with closing(sqlite3.connect(daemon.journal)) as source, closing(sqlite3.connect(backup)) as target:
            source.backup(target)
        with (daemon.inbox / "a.jsonl").open("a") as file:
            file.write(lines[2] + "\n")
        without = daemon.wait_learned(3)
        assert "already running" in daemon.ctl("journal", "archive", str(copy), check=False).stderr
        daemon.kill()

        for end in ("-wal", "-shm"):
            Path(f"{daemon.journal}{end}").unlink()
        shutil.move(backup, daemon.journal)
        daemon.ctl("journal", "archive", str(copy))
        daemon.drop("b.jsonl", lines[1])
        daemon.start().wait_ready()
        daemon.wait_learned(3)
        status = daemon.wait(lambda s: s["queue"]["duplicates"] == 1, "the duplicate", 180)
        assert (status["step"], status["queue"]["accepted"]) == (3, 3)
        assert status["weights"]["fingerprint"] == without["weights"]["fingerprint"]
        refused = daemon.ctl("rollback", "--to", "1", check=False)
        assert refused.returncode == 1 and f"is in the archive {copy}" in refused.stderr
        daemon.ctl("rollback", "--to", "2")
        assert daemon.status()["step"] == 2
        daemon.ctl("journal", "verify", "--archive", str(copy))
    finally:
        daemon.kill()
