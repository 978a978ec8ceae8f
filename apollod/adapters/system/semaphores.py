"""Removes named semaphores of the engine's processes, which outlive killed processes.

Python's `multiprocessing` makes them for children that are spawned, as `/dev/shm/sem.mp-*`, and a tracker process
removes the remaining ones. If a whole process group is killed, the tracker dies too. These names do not show the owner:
the processes that use them may even live in another container. So the engine's have a name of their own; a semaphore
with that name that belongs to us and is used by no process is ours to remove.
"""

import os
import stat
from pathlib import Path

VARIABLE = "APOLLOD_SEMAPHORES"
"""environment variable with the prefix of the names of the engine's semaphores"""

SHARED_MEMORY = Path("/dev/shm")  # where glibc keeps them (sem_open(3))


def name_ours() -> None:
    """Give the names of all semaphores that this process and its descendants make the prefix in the environment.
    Source: `SemLock._make_name` of multiprocessing/synchronize.py; children get a copy of this (`BaseProcess`)."""
    if prefix := os.environ.get(VARIABLE):
        from multiprocessing import process  # here only: the supervisor reads this file, too, and makes no semaphore

        process.current_process()._config["semprefix"] = f"/{prefix}"  # type: ignore[attr-defined]


def remove_left(prefix: str, directory: Path = SHARED_MEMORY) -> list[str]:
    """Remove semaphores of this user whose names begin with `prefix` and that no process has mapped; return their
    files' names. Blocking."""
    ours = {path: found for path in directory.glob(f"sem.{prefix}-*") if (found := _of_ours(path)) is not None}
    mapped = _mapped_files() if ours else set()
    left = [path for path, found in ours.items() if (found.st_dev, found.st_ino) not in mapped]
    for path in left:
        path.unlink(missing_ok=True)
    return sorted(path.name for path in left)


def _of_ours(path: Path) -> os.stat_result | None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return found if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() else None


def _mapped_files() -> set[tuple[int, int]]:
    """(device, inode) of all files that processes have mapped, as a semaphore is while it is open. Not by name: its
    maker has it mapped under another one, since glibc links it into place afterwards (sem_open)."""
    files: set[tuple[int, int]] = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            lines = maps.read_text(errors="replace").splitlines()
        except OSError:
            continue  # it ended, or belongs to another user, who cannot open our semaphores
        for line in lines:
            _, _, _, device, inode, *_ = line.split(maxsplit=5)  # proc_pid_maps(5)
            major, _, minor = device.partition(":")
            files.add((os.makedev(int(major, 16), int(minor, 16)), int(inode)))
    return files
