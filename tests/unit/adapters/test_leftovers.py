"""What killed processes left in a state directory is removed by the next daemon, and nothing else is."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from support.other_user import NOBODY, needs_root

from apollod.adapters.system.files import of_this_process, remove_of_the_dead
from apollod.adapters.system.service import Lock
from apollod.errors import AlreadyRunning, JournalError
from apollod.supervisor import app
from apollod.supervisor.config import Config, load_config
from apollod.wire.pipe_messages import SEARCH_ROOM


@pytest.fixture(scope="module")
def dead() -> int:
    """The number of a process that was killed."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process.kill()
    process.communicate()
    return process.pid


@pytest.fixture(scope="module")
def living() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process.pid
    process.communicate(b"\n")


def room(directory: Path, name: str) -> Path:
    """As a search leaves it: weights in directories."""
    path = directory / name
    (path / "first").mkdir(parents=True)
    (path / "first" / "weights").write_bytes(b"w" * 100)
    return path


def test_of_the_dead_everything_goes_and_of_the_living_nothing(tmp_path: Path, dead: int, living: int) -> None:
    gone = room(tmp_path, f"{SEARCH_ROOM}.tmp-{dead}")
    stay = [room(tmp_path, f"{SEARCH_ROOM}.tmp-{living}"), room(tmp_path, of_this_process(tmp_path, SEARCH_ROOM).name)]
    remove_of_the_dead(tmp_path, SEARCH_ROOM)
    assert not gone.exists() and all((path / "first" / "weights").exists() for path in stay)


@pytest.mark.parametrize(
    "name", ["search.tmp-{}x", "search.tmp-mine", "search.tmp-", "search-{}", "research.tmp-{}", "replay.tmp-{}",
             "search.tmp-1-{}", "search.tmp-٣"],
)  # fmt: skip
def test_whatever_has_another_name_stays(name: str, tmp_path: Path, dead: int) -> None:
    path = room(tmp_path, name.format(dead))
    remove_of_the_dead(tmp_path, SEARCH_ROOM)
    assert (path / "first" / "weights").exists()


def test_a_link_is_not_followed_neither_instead_of_it_nor_in_it(tmp_path: Path, dead: int) -> None:
    state, elsewhere = tmp_path / "state", room(tmp_path, "elsewhere")
    left = room(state, f"{SEARCH_ROOM}.tmp-{dead}")
    (left / "model").symlink_to(elsewhere)
    (left / "first" / "linked").symlink_to(elsewhere / "first" / "weights")
    link, file = state / f"{SEARCH_ROOM}.tmp-{dead}0000000", state / f"{SEARCH_ROOM}.tmp-{dead}1111111"
    link.symlink_to(elsewhere)
    file.write_bytes(b"f")
    remove_of_the_dead(state, SEARCH_ROOM)
    assert sorted(state.iterdir()) == sorted([link, file])
    assert (elsewhere / "first" / "weights").read_bytes() == b"w" * 100


@needs_root
def test_what_is_somebody_elses_stays(tmp_path: Path, dead: int) -> None:
    """A state directory may be any that the configuration names."""
    path = room(tmp_path, f"{SEARCH_ROOM}.tmp-{dead}")
    os.chown(path, NOBODY, -1)
    remove_of_the_dead(tmp_path, SEARCH_ROOM)
    assert (path / "first" / "weights").exists()


def test_without_a_directory_there_is_nothing_to_remove(tmp_path: Path) -> None:
    remove_of_the_dead(tmp_path / "missing", SEARCH_ROOM)


# --- the start of the daemon --------------------------------------------------------------------------------------


def ends_at_its_journal(tmp_path: Path) -> Config:
    """A daemon that comes as far as to its journal, which is a directory, and no further."""
    (tmp_path / "state" / "journal.db").mkdir(parents=True)
    return load_config(None, [f"state.dir={tmp_path / 'state'}", f"inbox.path={tmp_path / 'in'}", "model.path=/m"], {})


def test_the_start_of_a_daemon_removes_them_in_its_own_state_directory(tmp_path: Path, dead: int, living: int) -> None:
    config = ends_at_its_journal(tmp_path)
    gone, other = (
        room(config.state_dir, f"{SEARCH_ROOM}.tmp-{dead}"),
        room(tmp_path / "other", f"{SEARCH_ROOM}.tmp-{dead}"),
    )
    lives = room(config.state_dir, f"{SEARCH_ROOM}.tmp-{living}")
    with pytest.raises(JournalError):
        anyio.run(app.run, config)
    assert not gone.exists() and lives.exists() and other.exists()


def test_a_daemon_that_finds_another_one_there_removes_nothing(tmp_path: Path, dead: int) -> None:
    config = ends_at_its_journal(tmp_path)
    left = room(config.state_dir, f"{SEARCH_ROOM}.tmp-{dead}")
    lock = Lock(config.state_dir / "apollod.lock")
    try:
        with pytest.raises(AlreadyRunning):
            anyio.run(app.run, config)
        assert (left / "first" / "weights").exists()
    finally:
        lock.release()
