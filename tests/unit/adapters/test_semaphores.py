"""Semaphores that a killed engine leaves: real ones, of real processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.daemon import dead_within

from apollod.adapters.system.semaphores import SHARED_MEMORY, VARIABLE, remove_left
from apollod.supervisor.child_commands import engine_environment, semaphore_prefix
from apollod.supervisor.config import Config, load_config

PROGRAM = """
import multiprocessing, sys, time
if "engine" in sys.argv:
    from apollod.engine import __main__ as engine
    engine._prepare_children()
spawned = multiprocessing.get_context("spawn")

def child(parent):
    made = spawned.Lock()
    parent.send(made._semlock.name)
    time.sleep(600)

if __name__ == "__main__":
    held = [spawned.Lock(), spawned.Semaphore(2)]
    here, there = spawned.Pipe()
    process = spawned.Process(target=child, args=(there,))
    process.start()
    print(*(each._semlock.name for each in held), here.recv(), flush=True)
    time.sleep(600)
"""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "state").mkdir()
    return load_config(None, ["model.path=/m", f"state.dir={tmp_path / 'state'}"], {})


@contextmanager
def running(tmp_path: Path, config: Config, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], list[Path]]]:
    """A program that holds semaphores, as the leader of a group of its own, and their files."""
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    environment = {**os.environ, VARIABLE: engine_environment(config)[VARIABLE]}
    with subprocess.Popen(
        [sys.executable, str(file), *arguments], env=environment, stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        files: list[Path] = []
        try:
            assert process.stdout is not None
            files = [SHARED_MEMORY / f"sem.{name.lstrip('/')}" for name in process.stdout.readline().split()]
            assert len(files) == 3 and all(file.exists() for file in files)
            yield process, files
        finally:
            kill(process)
            for left in files:
                left.unlink(missing_ok=True)


def kill(process: subprocess.Popen[str]) -> None:
    """The whole group at once, the tracker of semaphores included: as the supervisor ends an engine. Waits until no
    member is left, since on a busy machine the spawned child maps its semaphores longer than its parent lives."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert dead_within([process.pid], 30) == [], "a member of the killed group does not end"


def test_what_a_killed_engine_leaves_is_removed_and_what_others_left_is_not(tmp_path: Path, config: Config) -> None:
    prefix = semaphore_prefix(config)
    with running(tmp_path, config, "engine") as (engine, ours), running(tmp_path, config) as (other, theirs):
        assert all(file.name.startswith(f"sem.{prefix}-") for file in ours), "a child's are named like its parent's"
        assert remove_left(prefix) == [] and all(file.exists() for file in ours), "it lives"
        kill(engine)
        kill(other)
        assert all(file.exists() for file in (*ours, *theirs)), "nothing is left behind: this test shows nothing"
        (tmp_path / "state" / "x").touch()  # the directory is the same one in the next life
        assert set(remove_left(semaphore_prefix(config))) == {file.name for file in ours}
        assert not any(file.exists() for file in ours) and all(file.exists() for file in theirs)


def test_only_files_of_this_user_with_this_very_name(tmp_path: Path) -> None:
    for name in ("sem.ours-a", "sem.ours2-a", "sem.mp-a", "ours-a"):
        (tmp_path / name).touch()
    (tmp_path / "sem.ours-b").symlink_to("sem.mp-a")
    assert remove_left("ours", tmp_path) == ["sem.ours-a"]
    assert (tmp_path / "sem.mp-a").exists() and (tmp_path / "sem.ours-b").is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_what_belongs_to_another_user_stays(tmp_path: Path) -> None:
    (tmp_path / "sem.ours-a").touch()
    os.chown(tmp_path / "sem.ours-a", 65534, 65534)
    assert remove_left("ours", tmp_path) == []


def test_two_state_directories_of_the_same_path_have_other_names(tmp_path: Path, config: Config) -> None:
    """As of two containers that share /dev/shm."""
    was = semaphore_prefix(config)
    (tmp_path / "state").rename(tmp_path / "elsewhere")
    (tmp_path / "state").mkdir()
    assert semaphore_prefix(config) != was
