"""Files that events name by their digest: whole or not there, whatever crashes, and said where they are missing."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import anyio
import msgspec
import pytest
from support.journals import write

from apollod.adapters.journal import blobs
from apollod.adapters.journal.writer import Journal
from apollod.cli.replay_plan import read_record
from apollod.core import events as ev
from apollod.core.settings import Settings, TrainerSettings
from apollod.failpoints import VARIABLE
from apollod.wire.records import MessagesRecord, decode_record
from apollod.wire.teacher import digest_of

BLOB = b"what a teacher said" * 100
DIGEST = digest_of(BLOB)
RECORD = b'{"messages":[{"content":"a","role":"user"},{"content":"b","role":"assistant"}]}'
ACCEPTED = ev.ExampleAccepted("e" * 32, msgspec.Raw(RECORD), "dream:d1", 1, tier="dream", teacher=DIGEST)


def test_a_blob_is_kept_under_its_digest_for_its_owner_alone(tmp_path: Path) -> None:
    there = tmp_path / "state" / "blobs"
    assert blobs.keep(there, BLOB) == DIGEST
    assert [path.name for path in there.iterdir()] == [DIGEST] and (there / DIGEST).read_bytes() == BLOB
    assert stat.S_IMODE(there.stat().st_mode) == 0o700 and stat.S_IMODE((there / DIGEST).stat().st_mode) == 0o600
    before = (there / DIGEST).stat()
    assert blobs.keep(there, BLOB) == DIGEST and (there / DIGEST).stat() == before, "the same bytes are one file"


def test_it_is_durable_with_its_name_before_anybody_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (flushed.append(os.readlink(f"/proc/self/fd/{fd}")), real(fd))[1])
    there = tmp_path / "blobs"
    for _ in range(2):  # also one whose writer may have died before it was
        blobs.keep(there, BLOB)
        assert any(DIGEST in name for name in flushed) and flushed.count(str(there)) == 1
        flushed.clear()


def test_a_file_that_was_changed_is_written_again(tmp_path: Path) -> None:
    (tmp_path / DIGEST).write_bytes(BLOB[:-1])
    assert blobs.keep(tmp_path, BLOB) == DIGEST and (tmp_path / DIGEST).read_bytes() == BLOB


@pytest.mark.parametrize("point", ["blob.before-rename", "blob.kept"])
def test_a_death_between_blob_and_event_leaves_nothing_that_matters(point: str, tmp_path: Path) -> None:
    """The journal knows nothing of the file; the next life keeps the same bytes, and its event finds them."""
    path, there = write(tmp_path / "journal.db", [ev.SourceDiscovered("s", "p")]), tmp_path / "blobs"
    keep = (
        "import sys; from pathlib import Path; from apollod.adapters.journal.blobs import keep\n"
        "keep(Path(sys.argv[1]), sys.stdin.buffer.read())"
    )
    died = subprocess.run(
        [sys.executable, "-c", keep, str(there)], input=BLOB, env={**os.environ, VARIABLE: point}, check=False
    )
    assert died.returncode == -signal.SIGKILL
    assert (there / DIGEST).exists() == (point == "blob.kept")

    async def next_life() -> bytes:
        journal = await Journal.open(path)
        assert blobs.keep(there, BLOB) == DIGEST
        await journal.append([ACCEPTED], 2)
        records = await journal.records_of([ACCEPTED.example])
        await journal.close()
        return records[ACCEPTED.example]

    assert blob_in(anyio.run(next_life)) == BLOB


def blob_in(record: bytes) -> bytes:
    typed = decode_record(record)
    assert isinstance(typed, MessagesRecord) and typed.teacher is not None and typed.teacher.digest == DIGEST
    assert bool(typed.teacher.blob) != bool(typed.teacher.why)
    return typed.teacher.blob or typed.teacher.why.encode()


def test_a_replay_finds_it_beside_the_journal_and_where_its_daemon_kept_it(tmp_path: Path) -> None:
    """A journal that was archived may lie anywhere."""
    state, elsewhere = tmp_path / "state", tmp_path / "archive"
    elsewhere.mkdir()
    started = ev.DaemonStarted(1, "0", Settings(model_path="m", trainer=TrainerSettings()), state_dir=str(state))
    path = str(write(elsewhere / "journal.db", [started, ACCEPTED]))
    missing = blob_in(read_record(path, ACCEPTED.example)).decode()
    assert str(elsewhere / "blobs" / DIGEST) in missing and "No such file" in missing
    blobs.keep(state / "blobs", BLOB)
    assert blob_in(read_record(path, ACCEPTED.example)) == BLOB
    (state / "blobs" / DIGEST).rename(tmp_path / "blob")
    blobs.keep(elsewhere / "blobs", BLOB)
    assert blob_in(read_record(path, ACCEPTED.example)) == BLOB


def test_an_example_without_a_teacher_is_given_as_it_was(tmp_path: Path) -> None:
    assert blobs.lesson(msgspec.structs.replace(ACCEPTED, teacher=""), [tmp_path]) == RECORD


def test_what_a_killed_writer_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    there, elsewhere = tmp_path / "blobs", tmp_path / "elsewhere"
    blobs.keep(there, BLOB)
    left = [there / f".{DIGEST}.{pid}" for pid in (1, 4711)]
    for path in left:
        path.write_bytes(BLOB[:5])
    elsewhere.write_bytes(b"mine")
    (there / f".{DIGEST}.5").symlink_to(elsewhere)
    (there / f".{DIGEST}.6").mkdir()
    (there / f".{DIGEST}.notes").write_bytes(b"mine")
    before = set(there.iterdir())
    blobs.remove_half_written(there)
    assert set(there.iterdir()) == before - set(left) and elsewhere.read_bytes() == b"mine"
    blobs.remove_half_written(tmp_path / "missing")


def test_what_is_wrong_with_a_file_is_said_with_its_path(tmp_path: Path) -> None:
    assert blobs.problem(tmp_path, blobs.keep(tmp_path, BLOB)) == ""
    (tmp_path / DIGEST).write_bytes(b"other")
    assert f"{tmp_path / DIGEST} was changed" in blobs.problem(tmp_path, DIGEST)
    (tmp_path / DIGEST).unlink()
    assert blobs.problem(tmp_path, DIGEST) == f"{tmp_path / DIGEST}: No such file or directory"
