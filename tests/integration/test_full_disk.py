"""A real disk that is full: intake stops, status answers and says so, and with room again everything waiting is
recorded once.

The disk is a small file system of our own; where none may be mounted, these tests are skipped.
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon import Daemon, chat_line
from support.effort import cases

from apollod.adapters.journal import journal_reader
from apollod.wire.messages import StatusRequest

MEGABYTES = 4


def mounted(kind: str, place: Path, image: Path) -> str:
    """Mount a small, empty file system there; the reason where that cannot be done. (With blocks of 1 KiB SQLite dies
    of SIGBUS when its shared memory finds no room.)"""
    commands = [["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m", "none", place]]
    if kind == "ext4":
        with image.open("wb") as file:
            file.truncate(MEGABYTES << 20)
        commands = [
            ["mkfs.ext4", "-q", "-m", "0", "-b", "4096", "-O", "^has_journal", image],
            ["mount", "-o", "loop", image, place],
        ]
    for command in commands:
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError as error:
            return f"no {error.filename} here"
        if done.returncode:
            return f"no file system can be mounted here: {done.stderr.strip()}"
    return ""


@pytest.fixture(params=cases(["ext4"], ["tmpfs"]))
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A mounted, nearly empty file system; tmpfs where ext4 cannot be had."""
    place = tmp_path / "disk"
    place.mkdir()
    if why := mounted(request.param, place, tmp_path / "image") and mounted("tmpfs", place, tmp_path / "image"):
        pytest.skip(why)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)  # a child may be still ending


@pytest.fixture
def daemon(disk: Path, tmp_path: Path) -> Iterator[Daemon]:
    """Its state is on the small disk, inbox and log are not."""
    made = Daemon(tmp_path, tmp_path / "no-model")
    (tmp_path / "state").symlink_to(disk)
    yield made
    if made.alive():
        made.process.kill()
        made.process.wait()


def fill(disk: Path) -> Path:
    """To the last byte."""
    file = disk / "filler"
    with file.open("ab", buffering=0) as out:
        for size in (1 << 16, 4096, 512, 1):
            try:
                while out.write(b"\0" * size) == size:
                    pass
            except OSError:
                continue
    assert os.statvfs(disk).f_bavail == 0
    return file


def until_full(daemon: Daemon, first: int = 0) -> list[str]:
    """Submit, a line at a time, until one is not confirmed: the log may have some room in its last page. Those
    confirmed."""
    confirmed: list[str] = []
    for number in range(first, first + 50):
        file = daemon.root / "one.jsonl"
        file.write_text(f"{chat_line(f'submitted {number}', 'y' * 2000)}\n")
        done = daemon.ctl("submit", str(file), "--json", check=False)
        if done.returncode:
            assert done.returncode == 1 and done.stdout == "" and "nothing is confirmed" in done.stderr
            # the daemon's words: it refuses, and the client does not give up waiting, which has words of its own
            assert "the disk is full" in done.stderr and "free some space" in done.stderr
            return confirmed
        confirmed += json.loads(done.stdout)["examples"]
    raise AssertionError("the disk was never full")


def accepted(daemon: Daemon, like: str) -> list[str]:
    """Examples by their text, in order; one that was recorded twice is here twice."""
    return [
        key
        for (key,) in daemon.query(
            f"SELECT key FROM events WHERE kind = 'example.accepted' AND body LIKE '%{like}%' ORDER BY seq"
        )
    ]


def test_intake_stops_status_answers_and_everything_waiting_is_recorded_once(daemon: Daemon, disk: Path) -> None:
    daemon.start()
    daemon.wait(lambda s: s["error"], "up", 180)
    filler = fill(disk)
    confirmed = until_full(daemon)
    daemon.drop("dropped.jsonl", *[chat_line(f"dropped {n}", "answer") for n in range(20)])
    status = daemon.status()
    assert (
        status["state"] == "degraded"
        and "the disk is full" in status["error"]
        and str(daemon.journal) in status["error"]
    )
    assert status["journal"]["free_bytes"] == 0 and "0 KiB are free" in status["error"]
    time.sleep(2.5)  # tries of the daemon
    # `status` gives up after ten seconds: it does not wait for the disk
    assert daemon.status()["journal"]["seq"] == status["journal"]["seq"], "nothing is taken meanwhile"
    for verb in ("pause", "checkpoint", "resume"):
        done = daemon.ctl(verb, check=False)
        assert done.returncode == 1 and "nothing is confirmed" in done.stderr
    assert daemon.log().count("journal.append_failed") == 1
    filler.unlink()
    status = daemon.wait(lambda s: s["queue"]["accepted"] >= 20 + len(confirmed), "what waited", 180)
    assert "full" not in status["error"]
    kept = accepted(daemon, "submitted")
    assert kept[: len(confirmed)] == confirmed and len(set(kept)) == len(kept) <= len(confirmed) + 1
    assert len(accepted(daemon, "dropped")) == len(set(accepted(daemon, "dropped"))) == 20
    assert daemon.ctl("journal", "verify").returncode == 0
    daemon.stop()


@pytest.mark.parametrize("noticed", [True, False])
def test_a_daemon_without_room_can_be_stopped_and_started_again(daemon: Daemon, disk: Path, noticed: bool) -> None:
    daemon.start()
    daemon.wait(lambda s: s["error"], "up", 180)
    filler = fill(disk)
    (daemon.root / "one.jsonl").write_text(chat_line("submitted later", "answer") + "\n")
    confirmed = until_full(daemon) if noticed else []
    begun = time.monotonic()
    daemon.process.terminate()
    assert daemon.process.wait(30) == 1 and time.monotonic() - begun < 10
    last = daemon.log().splitlines()[-1]
    assert (
        last.startswith("apollod: stopped while the journal could not be written") and "Traceback" not in daemon.log()
    )
    assert journal_reader.verify(daemon.journal) is None
    assert accepted(daemon, "submitted") == confirmed
    filler.unlink()
    daemon.start()
    daemon.wait(lambda s: s["error"] and "full" not in s["error"], "up again", 180)
    until = daemon.ctl("submit", str(daemon.root / "one.jsonl"), "--json")
    assert accepted(daemon, "submitted") == confirmed + json.loads(until.stdout)["examples"]
    daemon.stop()


def test_a_killed_daemon_is_not_lost_on_a_full_disk(daemon: Daemon, disk: Path) -> None:
    """It starts on the full disk, or says in a line why not; with room it has everything that was confirmed."""
    daemon.start()
    daemon.wait(lambda s: s["error"], "up", 180)
    filler = fill(disk)
    confirmed = until_full(daemon)
    daemon.kill()
    fill(disk)
    daemon.start()
    deadline = time.monotonic() + 120
    while daemon.alive() and time.monotonic() < deadline and daemon.ask(StatusRequest()) is None:
        time.sleep(0.05)
    if daemon.alive():
        confirmed += until_full(daemon, 100)  # what little fits is still taken
    else:
        assert daemon.process.returncode == 1 and "the disk is full" in daemon.log().splitlines()[-1]
    assert "Traceback" not in daemon.log()
    filler.unlink()
    if not daemon.alive():
        daemon.start()
    daemon.wait(lambda s: s["error"] and "full" not in s["error"], "up again", 180)
    assert [id_ for id_ in accepted(daemon, "submitted") if id_ in confirmed] == confirmed
    assert daemon.ctl("journal", "verify").returncode == 0
    daemon.stop()


def test_a_bad_line_that_cannot_be_kept_is_not_taken(daemon: Daemon, disk: Path) -> None:
    daemon.start()
    daemon.wait(lambda s: s["error"], "up", 180)
    file = daemon.root / "bad.jsonl"
    file.write_text("no json " * 1000 + "\n")
    filler = fill(disk)
    done = daemon.ctl("submit", str(file), check=False)
    assert done.returncode == 1 and "No space left on device" in done.stderr and "nothing was taken" in done.stderr
    daemon.drop("bad.jsonl", "no json " * 1000, chat_line("after it", "answer"))
    time.sleep(1)
    assert daemon.alive() and accepted(daemon, "after it") == []
    filler.unlink()
    daemon.wait(lambda s: s["queue"]["rejected"] == 1 and s["queue"]["accepted"] == 1, "the file", 180)
    assert "Traceback" not in daemon.log()
    daemon.stop()


def test_a_journal_that_cannot_be_copied_aside_is_not_migrated_and_leaves_nothing(daemon: Daemon, disk: Path) -> None:
    shutil.copy(Path(__file__).parents[1] / "golden" / "v0.1.0.db", daemon.journal)
    for name in ("quarantine", "log", "run"):
        (disk / name).mkdir()
    before, filler = daemon.journal.read_bytes(), fill(disk)
    for _ in range(2):
        daemon.start()
        assert daemon.process.wait(60) == 1
    assert daemon.journal.read_bytes() == before and not list(disk.glob("*backup*"))
    said = daemon.log()
    assert said.count("could not be copied aside") == 2 and "make room" in said and "Traceback" not in said
    filler.unlink()
    daemon.start()
    daemon.wait(lambda s: s["error"], "up", 180)
    assert len(list(disk.glob("*.backup"))) == 1
