"""What can be wrong with a journal, one by one, against the real `apollod run`: a precise line, a way out, nothing
overwritten.

No model is needed: the daemon comes up, and says that there is none, in under a second.
"""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from support import in_memory
from support.commands import ran
from support.daemon import Daemon, chat_line
from support.journals import AT, append_row, edit, flip, foreign_log, other_journal, other_program, shell

from apollod.adapters.base_model import keep
from apollod.adapters.journal import journal_reader
from apollod.adapters.journal.writer import Journal
from apollod.core import events as ev
from apollod.errors import ApolloError, ChainBroken
from apollod.wire.state_snapshot import fold_code

LINES = 400  # examples, so that the file has many pages

tmp_path = in_memory.tmp_path


async def _append(path: Path, *events: ev.Event, at_ns: int = AT) -> None:
    journal = await Journal.open(path)
    await journal.append(events, at_ns)
    await journal.close()


def last(path: Path) -> int:
    """The newest event."""
    return int(journal_reader.query(path, "SELECT max(seq) FROM events").rows[0][0])


@pytest.fixture(scope="module")
def lived() -> Iterator[Path]:
    """A journal whose newest snapshot is three events before its end."""
    with in_memory.directory() as root:
        yield lived_in(root)


def lived_in(root: Path) -> Path:
    daemon = Daemon(root, root / "no-model").start()
    try:
        daemon.wait(lambda s: s["error"], "up", 180)
        daemon.drop("a.jsonl", *[json.dumps({"text": f"line {n:04d} {'x' * 300}"}) for n in range(LINES)])
        daemon.wait(lambda s: s["queue"]["pending"] == LINES, "all lines", 180)
    finally:
        daemon.stop()
    found = journal_reader.snapshot(daemon.journal, fold_code())
    assert found is not None and found.seq == last(daemon.journal)
    anyio.run(lambda: _append(daemon.journal, *[ev.TrainingResumed(by=f"after-{n}") for n in (1, 2, 3)]))
    return daemon.journal


@pytest.fixture
def daemon(tmp_path: Path, lived: Path) -> Iterator[Daemon]:
    """Not started; its journal is a copy of `lived`."""
    made = Daemon(tmp_path, lived.parents[1] / "no-model")
    made.journal.parent.mkdir()
    shutil.copy(lived, made.journal)
    yield made
    if made.alive():
        made.stop()


def bytes_of(daemon: Daemon) -> dict[str, bytes]:
    """Journal and log, as they are on disk; an empty log is none."""
    files = {
        path.name: path.read_bytes()
        for path in daemon.journal.parent.glob("journal.db*")
        if not path.name.endswith("-shm")
    }
    return {name: data for name, data in files.items() if data}


def run(daemon: Daemon) -> "subprocess.CompletedProcess[str]":
    return ran("run", "--config", daemon.config)


def refusal(daemon: Daemon) -> str:
    """The one line with which a start is refused. Nothing on disk is other than before."""
    before = bytes_of(daemon)
    done = run(daemon)
    assert done.returncode == 1, done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("apollod: ")]
    assert len(said) == 1 and "Traceback" not in done.stderr and done.stdout == ""
    assert bytes_of(daemon) == before, "something was overwritten"
    assert ";" in said[0], "a way out"
    return said[0]


# --- refused at the start -----------------------------------------------------------------------------------------


BAD: dict[str, tuple[Callable[[Path], Any], list[str]]] = {
    "half of the file is gone": (
        lambda path: os.truncate(path, path.stat().st_size // 2),
        ["is damaged", "restore a backup"],
    ),
    "a page is gone": (lambda path: os.truncate(path, path.stat().st_size - 4096), ["is damaged", "restore a backup"]),
    "a flipped bit after the snapshot": (
        lambda path: flip(path, b"after-2"),
        ["event {2} ", "does not match its hash", "--to {1}"],
    ),
    "a flipped bit makes it no JSON": (
        lambda path: flip(path, b'{"by":"after-2"'),
        ["event {2} ", "does not match its hash", "--to {1}"],
    ),
    "a flipped bit makes it no text": (
        lambda path: flip(path, b"after-2", 7),
        ["event {2} ", "does not match its hash", "--to {1}"],
    ),
    "a flipped bit in the newest event": (
        lambda path: flip(path, b"after-3"),
        ["event {3} ", "does not match its hash"],
    ),
    "a row is deleted": (
        lambda path: edit(path, "DELETE FROM events WHERE body LIKE '%after-2%'"),
        ["event {2} is missing", "backup"],
    ),
    "the newest event has another number": (
        lambda path: edit(path, "UPDATE events SET seq = 9000 WHERE body LIKE '%after-3%'"),
        ["event {3} is missing", "--to {2}"],
    ),
    "a row is edited": (
        lambda path: edit(path, "UPDATE events SET at_ns = 0 WHERE body LIKE '%after-1%'"),
        ["event {1} ", "backup"],
    ),
    "the schema is from the future": (
        lambda path: edit(path, "PRAGMA user_version = 99"),
        ["has schema 99", "knows up to", "use the newer apollod"],
    ),
    "a migration is another one": (
        lambda path: edit(path, "UPDATE migrations SET checksum = 'x'"),
        ["migration 0024_journal", "use a released apollod"],
    ),
    "a kind is not known": (
        lambda path: append_row(path, "moon.howled", 1, "{}"),
        ["event {4}:", "'moon.howled' is not known", "newer apollod"],
    ),
    "a kind has a newer version": (
        lambda path: append_row(path, "training.paused", 7, "{}"),
        ["event {4}:", "has version 7", "newer apollod"],
    ),
    "a body is of another shape": (
        lambda path: append_row(path, "training.paused", 1, '{"by": 5}'),
        ["event {4}:", "does not decode", "restore a backup"],
    ),
    "no database": (lambda path: path.write_text("words " * 2000), ["not a SQLite database", "left as it is"]),
    "another program's database": (
        lambda path: (path.unlink(), other_program(path).close()),
        ["another program", "apollod journal"],
    ),
    "another program's log": (
        lambda path: foreign_log(path, other_program),
        ["journal.db-wal is not the write-ahead log", "put back"],
    ),
    "another journal's log": (lambda path: foreign_log(path, other_journal), ["journal.db-wal", "nothing was changed"]),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_journal_is_refused_in_one_line_and_left_as_it_is(daemon: Daemon, name: str) -> None:
    spoil, words = BAD[name]
    after = [last(daemon.journal) - 3 + n for n in range(5)]
    spoil(daemon.journal)
    line = refusal(daemon)
    assert str(daemon.journal) in line or re.search(r"event \d+:", line)
    for word in words:
        assert word.format(*after) in line
    assert refusal(daemon) == line, "a second try says the same"


OLDER = Path(__file__).parents[1] / "golden" / "v0.1.0.db"


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (
            lambda path: flip(path, b"A line of plain text"),
            ["event 15 ", "does not match its hash", "nothing was written"],
        ),
        (lambda path: edit(path, "DELETE FROM events WHERE seq = 11"), ["event 11 is missing", "nothing was written"]),
        (lambda path: edit(path, "UPDATE events SET seq = 9000 WHERE seq = 183"), ["event 183 is missing"]),
        (lambda path: os.truncate(path, path.stat().st_size - 4096), ["is damaged", "nothing was changed"]),
        (
            lambda path: append_row(path, "moon.howled", 1, "{}"),
            ["event 184:", "'moon.howled' is not known", "newer apollod"],
        ),
        (lambda path: append_row(path, "training.paused", 7, "{}"), ["event 184:", "has version 7", "newer apollod"]),
    ],
)
def test_a_bad_journal_of_an_older_schema_is_not_migrated(
    daemon: Daemon, spoil: Callable[[Path], None], words: list[str]
) -> None:
    """What is not trusted is not changed, nor copied aside."""
    shutil.copy(OLDER, daemon.journal)
    spoil(daemon.journal)
    line = refusal(daemon)
    assert all(word in line for word in words)


@pytest.mark.parametrize(("bit", "code"), [(0, 1), (7, 0)])
def test_why_names_a_body_that_is_no_json_any_more_and_shows_what_is_left_of_a_text(
    daemon: Daemon, bit: int, code: int
) -> None:
    shutil.copy(OLDER, daemon.journal)
    flip(daemon.journal, b'{"text":"A line of plain' if bit == 0 else b"A line of plain", bit)
    done = daemon.ctl("why", "c67bd7fc", check=False)
    assert done.returncode == code and done.stderr.count("\n") == code
    assert (
        "event 15 of the journal" in done.stderr
        if code
        else "\N{REPLACEMENT CHARACTER} line of plain text" in done.stdout
    )


def test_how_far_a_journal_that_is_cut_off_is_there_is_said(daemon: Daemon) -> None:
    whole = daemon.journal.stat().st_size
    os.truncate(daemon.journal, 50_001)
    done = daemon.ctl("journal", "verify", check=False)
    assert (
        done.returncode == 1
        and f"cut off: 50001 of {whole} bytes are there" in done.stderr
        and ".recover" in done.stderr
    )


@pytest.mark.parametrize("limit", [["--limit", "-1"], ["--seconds", "nan"], ["--seconds", "-1"], ["--seconds", "inf"]])
def test_a_limit_that_is_none_is_refused(daemon: Daemon, limit: list[str]) -> None:
    done = daemon.ctl("query", "SELECT 1", *limit, check=False)
    assert done.returncode == 2 and "is none" in done.stderr and done.stdout == ""


def test_the_limits_of_a_query_hold(daemon: Daemon) -> None:
    assert daemon.ctl("query", "SELECT seq FROM events ORDER BY seq", "--limit", "3", "--csv").stdout.splitlines() == [
        "seq",
        "1",
        "2",
        "3",
    ]
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    done = daemon.ctl("query", endless, "--seconds", "0.2", check=False)
    assert done.returncode == 1 and "took longer than 0.2 s" in done.stderr


def test_a_copy_is_asked_without_a_daemon_or_a_configuration() -> None:
    def ctl(*args: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "apollod", "ctl", *args], capture_output=True, text=True, timeout=60
        )

    assert ctl("query", "SELECT count(*) AS n FROM events", "--file", str(OLDER), "--csv").stdout.split() == [
        "n",
        "183",
    ]
    assert "daemon.started" in ctl("events", "--limit", "0", "--file", str(OLDER)).stdout.splitlines()[0]
    assert ctl("query", "SELECT 1", "--file", str(OLDER), "--csv", "--json").returncode == 2


def test_a_good_journal_of_an_older_schema_is_copied_aside_and_migrated(daemon: Daemon) -> None:
    shutil.copy(OLDER, daemon.journal)
    anyio.run(lambda: _append(daemon.journal, ev.TrainingResumed(by="test")))
    (backup,) = daemon.journal.parent.glob("*.backup")
    assert last(backup) == 183 and last(daemon.journal) == 184 and journal_reader.verify(daemon.journal) is None


@pytest.mark.parametrize("how", ["empty", "missing"])
def test_a_journal_that_was_lost_beside_its_log_is_no_new_one(daemon: Daemon, how: str) -> None:
    """SQLite drops the log of an empty database, even where it may only read: events that were confirmed would be
    gone."""
    daemon.start()
    daemon.wait(lambda s: s["error"], "up", 180)
    assert submitted(daemon, 3).returncode == 0
    daemon.kill()
    whole, log = daemon.journal.read_bytes(), Path(f"{daemon.journal}-wal")
    held = log.read_bytes()
    daemon.journal.unlink() if how == "missing" else os.truncate(daemon.journal, 0)
    assert "write-ahead log" in refusal(daemon) and "restore a backup" in refusal(daemon)
    for verb in (["journal", "verify"], ["query", "SELECT 1"], ["replay"], ["events"], ["why", "1"]):
        done = daemon.ctl(*verb, check=False)
        assert done.returncode == 1 and f"is {how}" in done.stderr and log.read_bytes() == held
    assert daemon.journal.exists() == (how == "empty")
    daemon.journal.write_bytes(whole)
    daemon.start()
    daemon.wait(lambda s: s["error"], "up again", 180)
    accepted = "kind = 'example.accepted' AND body LIKE '%\"question %'"
    assert daemon.query(f"SELECT count(*) FROM events WHERE {accepted}") == [(3,)]


@pytest.mark.parametrize("how", ["empty", "missing"])
def test_a_journal_that_was_lost_beside_its_checkpoints_is_no_new_one(daemon: Daemon, how: str) -> None:
    """What is in the model directory would pass for the untrained model."""
    old = daemon.root / "state" / "checkpoints" / "step-00000012"
    old.mkdir(parents=True)
    daemon.journal.unlink() if how == "missing" else os.truncate(daemon.journal, 0)
    line = refusal(daemon)
    assert f"is {how}" in line and str(old) in line and "restore the journal" in line and "move" in line


@pytest.mark.parametrize(
    "name",
    [
        "half of the file is gone",
        "a flipped bit after the snapshot",
        "a flipped bit makes it no JSON",
        "a flipped bit makes it no text",
        "a row is deleted",
        "a kind is not known",
        "no database",
    ],
)
@pytest.mark.parametrize(
    "verb",
    [
        ["journal", "verify"],
        ["replay"],
        ["status"],
        ["query", "SELECT count(body) FROM events"],
        ["events", "--kind", "training.*"],
        ["query", "SELECT body, body ->> '$.by' FROM events WHERE kind = 'training.resumed'"],
    ],
)
def test_every_command_answers_a_bad_journal_without_a_traceback(daemon: Daemon, name: str, verb: list[str]) -> None:
    bad = last(daemon.journal) - 1
    BAD[name][0](daemon.journal)
    before = bytes_of(daemon)
    done = daemon.ctl(*verb, check=False)
    assert done.returncode == (3 if verb == ["status"] else 0 if not done.stderr and "broken" not in done.stdout else 1)
    assert done.stderr.count("\n") <= 1
    assert "is wrong" not in done.stderr, "it is not the query"
    if done.returncode and "JSON" in name and verb[0] in ("events", "query"):
        assert "damaged" in done.stderr and "journal verify" in done.stderr
    if verb == ["journal", "verify"] and "flipped" in name:
        assert f"broken at event {bad}" in done.stdout and done.returncode == 1
    assert bytes_of(daemon) == before


def test_a_second_daemon_names_the_first(daemon: Daemon) -> None:
    daemon.start()
    daemon.wait(lambda s: s["error"], "the first one", 180)
    done = run(daemon)
    assert (
        done.returncode == 1
        and f"(pid {daemon.process.pid}) is already running" in done.stderr
        and "Traceback" not in done.stderr
    )
    assert daemon.status()["pid"] == daemon.process.pid


def test_a_journal_that_a_shell_locks_for_itself_alone(daemon: Daemon) -> None:
    with shell(daemon.journal) as db:
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("BEGIN EXCLUSIVE")
        done = run(daemon)
    assert done.returncode == 1 and "another process holds" in done.stderr and "close the SQLite shell" in done.stderr


@contextmanager
def unwritable(directory: Path) -> Iterator[None]:
    """For root a read-only disk, for others a directory without the right."""
    root = os.geteuid() == 0
    if root:
        for command in (["mount", "--bind", directory, directory], ["mount", "-o", "remount,bind,ro", directory]):
            if subprocess.run(command, capture_output=True).returncode:
                pytest.skip("nothing can be mounted here")
    else:
        directory.chmod(0o555)
    try:
        yield
    finally:
        if root:
            subprocess.run(["umount", directory], check=True)
        else:
            directory.chmod(0o755)


@pytest.mark.parametrize("prepared", [False, True])
def test_a_disk_that_is_read_only(daemon: Daemon, prepared: bool) -> None:
    for name in ("quarantine", "log", "run") if prepared else ():
        (daemon.root / "state" / name).mkdir()
    with unwritable(daemon.root / "state"):
        line = refusal(daemon)
        assert daemon.ctl("journal", "verify").returncode == 0
        assert daemon.ctl("query", "SELECT count(*) FROM events").returncode == 0
    assert str(daemon.root / "state") in line and "check [state] dir" in line
    assert "Read-only file system" in line or "Permission denied" in line


# --- found while it runs ------------------------------------------------------------------------------------------


def test_the_chain_is_read_back_from_the_first_event(daemon: Daemon) -> None:
    head = last(daemon.journal)
    daemon.start()
    status = daemon.wait(lambda s: s["journal"]["verified"] >= head, "the check", 180)
    assert status["journal"]["verified"] == head and "damaged" not in status["error"]
    assert status["journal"]["free_bytes"] > 0


@pytest.mark.parametrize(
    ("spoil", "bad"),
    [
        (lambda path: flip(path, b"line 0200"), "line 0200"),
        (lambda path: edit(path, "DELETE FROM events WHERE body LIKE '%line 0010%'"), "line 0010"),
        (lambda path: edit(path, f"DELETE FROM events WHERE seq BETWEEN 300 AND {last(path) - 4}"), 300),
    ],
)
def test_damage_before_the_snapshot_is_found_and_said(
    daemon: Daemon, spoil: Callable[[Path], None], bad: int | str
) -> None:
    """A start does not read there; what it needs is good."""
    if isinstance(bad, str):
        ((bad,),) = journal_reader.query(daemon.journal, f"SELECT seq FROM events WHERE body LIKE '%{bad}%'").rows
    spoil(daemon.journal)
    rows = journal_reader.query(daemon.journal, "SELECT * FROM events", 10_000).rows
    daemon.start()
    status = daemon.wait(lambda s: "damaged" in s["error"], "the check", 180)
    assert status["state"] == "degraded" and status["journal"]["verified"] < bad
    assert f"event {bad} " in status["error"] and "restore a backup" in status["error"]
    assert daemon.ctl("status").returncode == 0
    submitted(daemon, 1)
    done = daemon.ctl("journal", "verify", check=False)
    assert done.returncode == 1 and f"broken at event {bad}" in done.stdout
    assert daemon.log().count("journal.damaged") == 1
    daemon.stop()
    assert journal_reader.query(daemon.journal, "SELECT * FROM events", 10_000).rows[: len(rows)] == rows


def submitted(daemon: Daemon, count: int, first: int = 0) -> "subprocess.CompletedProcess[str]":
    file = daemon.root / f"more-{first}.jsonl"
    file.write_text("".join(f"{chat_line(f'question {n}', 'answer')}\n" for n in range(first, first + count)))
    return daemon.ctl("submit", str(file), check=False)


def test_a_foreign_lock_is_waited_for_and_everything_is_recorded_once(daemon: Daemon) -> None:
    daemon.start()
    daemon.wait(lambda s: s["error"], "up", 180)
    with shell(daemon.journal) as db:
        db.execute("BEGIN IMMEDIATE")
        done = submitted(daemon, 3)
        assert (
            done.returncode == 1 and "nothing is confirmed" in done.stderr and "close the SQLite shell" in done.stderr
        )
        status = daemon.status()
        assert status["state"] == "degraded" and "another process holds the journal" in status["error"]
        db.execute("ROLLBACK")
    daemon.wait(lambda s: "another process" not in s["error"], "writing again", 180)
    assert submitted(daemon, 3).returncode == 0
    rows = daemon.query(
        "SELECT count(*), count(DISTINCT key) FROM events WHERE kind = 'example.accepted' AND body LIKE '%\"question %'"
    )
    assert rows == [(3, 3)]
    assert daemon.ctl("journal", "verify").returncode == 0


def test_a_second_writer_ends_the_daemon_with_its_reason(daemon: Daemon) -> None:
    daemon.start()
    daemon.wait(lambda s: s["error"], "up", 180)

    anyio.run(lambda: _append(daemon.journal, ev.TrainingResumed(by="an intruder")))
    daemon.ctl("pause", check=False)
    assert daemon.process.wait(30) == 1
    last = daemon.log().splitlines()[-1]
    assert last.startswith("apollod: ") and "nothing else writes to it" in last and "Traceback" not in daemon.log()
    assert journal_reader.verify(daemon.journal) is None
    daemon.start()
    daemon.wait(lambda s: s["error"], "up again", 180)


def test_an_unclean_end_without_its_log_is_an_older_journal_and_a_noted_head_proves_it(daemon: Daemon) -> None:
    before = last(daemon.journal)
    daemon.start()
    daemon.wait(lambda s: s["error"], "up", 180)
    assert submitted(daemon, 5).returncode == 0
    noted = daemon.status()["journal"]
    daemon.kill()
    Path(f"{daemon.journal}-wal").unlink()
    assert daemon.ctl("journal", "verify").returncode == 0
    done = daemon.ctl("journal", "verify", "--expect", noted["head_hash"], check=False)
    assert done.returncode == 1 and "another history" in done.stdout
    daemon.start()
    daemon.wait(lambda s: s["journal"]["seq"] > before, "up again", 180)
    assert submitted(daemon, 5).returncode == 0
    assert daemon.ctl("journal", "verify").returncode == 0


@pytest.mark.parametrize("keep", [10, 2000, 9000])
def test_a_log_that_is_cut_off_loses_its_end_and_nothing_else(daemon: Daemon, keep: int) -> None:
    """As after a disk that lied about what it had written."""
    daemon.start()
    daemon.wait(lambda s: s["error"], "up", 180)
    assert submitted(daemon, 5).returncode == 0
    daemon.kill()
    os.truncate(f"{daemon.journal}-wal", keep)
    daemon.start()
    daemon.wait(lambda s: s["error"], "up again", 180)
    assert journal_reader.verify(daemon.journal) is None
    assert submitted(daemon, 5).returncode == 0


# --- a clock that jumped ------------------------------------------------------------------------------------------


FUTURE = 4_100_000_000_000_000_000  # 2099


def test_a_clock_that_was_set_back(daemon: Daemon) -> None:
    """The last life was in 2099, as its clock had it."""
    before = last(daemon.journal)
    refused = ev.EngineExited(pid=0, code=None, reason="x", refused=True)
    anyio.run(
        lambda: _append(
            daemon.journal, refused, ev.CheckpointFailed(step=0, path="/c", reason="disk full"), at_ns=FUTURE
        )
    )
    anyio.run(lambda: _append(daemon.journal, ev.TrainingPaused(by="test"), at_ns=AT + 1))
    daemon.start()
    status = daemon.wait(
        lambda s: "does not exist" in s["error"], "the start of the engine, whose back-off is not until 2099", 30
    )
    assert 0 <= status["uptime_s"] < 60
    assert submitted(daemon, 2).returncode == 0
    daemon.stop()
    assert journal_reader.verify(daemon.journal) is None
    seqs = [seq for (seq,) in daemon.query("SELECT seq FROM events ORDER BY seq")]
    assert seqs == list(range(1, len(seqs) + 1))
    at = json.loads(daemon.ctl("replay", "--json", "--at", "2023-11-14T22:13:20.123456Z").stdout)
    assert at["replayed"] == before + 3, "the last event with that time, in the order of the journal"
    assert json.loads(daemon.ctl("replay", "--json", "--at", "2100-01-01").stdout)["replayed"] == len(seqs)


# --- a disk that fails --------------------------------------------------------------------------------------------


def test_a_failed_write_ends_the_daemon_and_the_next_one_has_everything_that_was_confirmed(daemon: Daemon) -> None:
    """The kernel refuses to let the log grow (EFBIG), which SQLite takes for what it is: an I/O error, not a full
    disk."""
    daemon.start()
    daemon.wait(lambda s: s["error"], "up", 180)
    assert submitted(daemon, 3).returncode == 0
    confirmed = daemon.status()["journal"]
    log = Path(f"{daemon.journal}-wal")
    before = daemon.journal.read_bytes()
    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (log.stat().st_size + 100_000, resource.RLIM_INFINITY))
    file = daemon.root / "large.jsonl"
    file.write_text(f"{json.dumps({'text': 'x' * 500_000})}\n")
    done = daemon.ctl("submit", str(file), check=False)
    assert done.returncode in (1, 3)
    assert daemon.process.wait(30) == 1
    last = daemon.log().splitlines()[-1]
    assert (
        last.startswith("apollod: ")
        and "disk I/O error" in last
        and "kernel's log" in last
        and "Traceback" not in daemon.log()
    )
    assert daemon.journal.read_bytes() == before and log.exists(), "after a failed write nothing is moved"
    daemon.start()
    daemon.wait(lambda s: s["error"], "up again", 180)
    (row,) = daemon.query(f"SELECT hash FROM events WHERE seq = {confirmed['seq']}")
    assert row == (confirmed["head_hash"],)
    assert daemon.ctl("submit", str(file)).returncode == 0
    assert daemon.ctl("journal", "verify").returncode == 0


def test_after_a_failed_write_it_serves_takes_nothing_and_says_so_until_somebody_restarts_it(
    tmp_path: Path, tiny_model: Path
) -> None:
    daemon = Daemon(tmp_path, tiny_model).start()
    try:
        daemon.wait_ready()
        daemon.drop("a.jsonl", chat_line("question", "answer"))
        daemon.wait_learned(1)
        shutil.rmtree(daemon.wait(lambda s: s["base"]["kept"], "a way back to the untrained weights")["base"]["path"])
        lost = daemon.wait(lambda s: not s["base"]["kept"], "its loss, while the daemon runs", 180)
        assert "is gone" in lost["base"]["reason"]
        confirmed = lost["journal"]
        log = Path(f"{daemon.journal}-wal")
        resource.prlimit(
            daemon.process.pid, resource.RLIMIT_FSIZE, (log.stat().st_size + 100_000, resource.RLIM_INFINITY)
        )
        with pytest.raises(ApolloError, match="nothing is confirmed"):
            daemon.submit(json.dumps({"text": "x" * 500_000}))
        status = daemon.status()
        assert (
            status["state"] == "degraded"
            and "disk I/O error" in status["error"]
            and "restart the daemon" in status["error"]
        )
        for _ in range(2):
            assert daemon.get("/health")[0] == 200
            with pytest.raises(ApolloError, match="nothing is confirmed"):
                daemon.submit(json.dumps({"text": "more"}))
        os.kill(status["engine"]["pid"], signal.SIGKILL)
        assert daemon.process.wait(30) == 1, "nobody is served any more"
        assert "disk I/O error" in daemon.log().splitlines()[-1] and "Traceback" not in daemon.log()
        anyio.run(lambda: _append(daemon.journal, ev.TrainingResumed(by="test")))  # as a new start opens it
        assert daemon.query(f"SELECT hash FROM events WHERE seq = {confirmed['seq']}") == [(confirmed["head_hash"],)]
        assert journal_reader.verify(daemon.journal) is None
    finally:
        if daemon.alive():
            daemon.stop()


def test_what_is_learned_is_what_was_accepted(tmp_path: Path, lived: Path) -> None:
    """A record that changed on the disk is not handed to the trainer, though it still is JSON."""
    path = Path(shutil.copy(lived, tmp_path / "journal.db"))
    ((seq, example),) = journal_reader.query(path, "SELECT seq, key FROM events WHERE body LIKE '%line 0007%'").rows

    async def records() -> dict[str, bytes]:
        journal = await Journal.open(path)
        try:
            return await journal.records_of([example])
        finally:
            await journal.close()

    assert b"line 0007" in anyio.run(records)[example]
    edit(path, "UPDATE events SET body = replace(body, 'line 0007', 'line 0008') WHERE kind = 'example.accepted'")
    with pytest.raises(ChainBroken, match=f"event {seq} "):
        anyio.run(records)


def test_a_changed_event_in_the_log_is_found_before_the_log_goes_into_the_file(daemon: Daemon) -> None:
    """Not the newest one. A start that finds it later has overwritten the journal by then."""
    files, bad = (daemon.journal, Path(f"{daemon.journal}-wal")), last(daemon.journal) - 2
    with shell(daemon.journal) as db:
        db.execute("DROP TRIGGER events_unchanged")
        db.execute("UPDATE events SET at_ns = 0 WHERE body LIKE '%after-1%'")
        crashed = [file.read_bytes() for file in files]
    for file, content in zip(files, crashed, strict=True):
        file.write_bytes(content)
    assert f"event {bad} " in refusal(daemon)


def test_the_loss_of_the_untrained_weights_is_said_while_the_daemon_runs_and_at_its_next_start(daemon: Daemon) -> None:
    model, base = daemon.root / "kept", daemon.root / "state" / "base" / "kept"
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"weights")
    for _ in range(2):
        keep(model, base, "copy", lambda: False)
        anyio.run(lambda: _append(daemon.journal, ev.BaseKept(str(base), "copy", 7, 0.0)))
        if daemon.process is not None:
            shutil.rmtree(base)
        daemon.start()
        if base.exists():
            daemon.wait(lambda s: s["base"]["kept"], "the way back", 180)
            shutil.rmtree(base)
        told = daemon.wait(lambda s: "is gone" in s["base"]["reason"], "its loss", 180)["base"]
        assert told == {"kept": False, "path": None, "how": None, "reason": f"{base} is gone"}
        daemon.stop()
