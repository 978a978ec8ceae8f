"""Memory and other figures of a daemon's processes, read from /proc; and the files below its state directory."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

PERIOD_S = 10.0
TICKS = os.sysconf("SC_CLK_TCK")
SHARED = "/dev/shm/"
ROLES = (
    ("apollod.engine", "engine"), ("EngineCore", "engine core"), ("apollod.trainer.offline", "replay"),
    ("apollod.trainer", "trainer"), ("apollod", "supervisor"),
)  # fmt: skip
"""Part of the name or the command line of a process, and its role; the first match counts."""

Sample = dict[str, Any]


class Watch:
    """`with Watch(pid_of, state, keep)`: samples the daemon `pid_of()` and its descendants every `PERIOD_S` seconds,
    and gives each sample to `keep`. `left_behind`: their shared memory that outlives them."""

    def __init__(self, pid_of: Callable[[], int | None], state: Path, keep: Callable[[Sample], None]) -> None:
        self._pid_of, self._state, self._keep = pid_of, state, keep
        self._shared: set[str] = set()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="watch")

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def left_behind(self) -> list[str]:
        """Names in /dev/shm that processes of this daemon had open and that still exist."""
        return sorted(name for name in self._shared if os.path.exists(name))

    def _run(self) -> None:
        while not self._end.wait(PERIOD_S):
            self._keep(self.look())

    def look(self) -> Sample:
        """Take a sample now."""
        pid = self._pid_of()
        processes = [one for each in family(pid) if (one := process(each))] if pid else []
        for one in processes:
            self._shared |= one.pop("shared")
        return {
            "at": time.time(), "processes": processes, "state": sizes(self._state),
            "shared": sum(_size(name) for name in self._shared),
        }  # fmt: skip


def family(pid: int) -> list[int]:
    """A process and all its living descendants."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _stat(int(entry))) and fields[0] != "Z":
            children.setdefault(int(fields[1]), []).append(int(entry))
    found, ahead = list[int](), [pid]
    while ahead:
        found.append(ahead.pop())
        ahead += children.get(found[-1], [])
    return found


def process(pid: int) -> dict[str, Any] | None:
    """Role, start and figures of a process; None if it is gone, or another user's."""
    with suppress(OSError, ValueError, KeyError):
        proc, fields = Path(f"/proc/{pid}"), _stat(pid)
        memory = dict(_rollup((proc / "smaps_rollup").read_text()))
        links = list(_links(proc / "fd"))
        threads = len(os.listdir(proc / "task"))
        role = role_of((proc / "comm").read_text(), (proc / "cmdline").read_text(errors="replace"))
        files = {(s.st_dev, s.st_ino): s.st_blocks * 512 for name, s in links if name.startswith("/memfd:")}
        return {
            "pid": pid, "began": int(fields[19]), "role": role, "rss": memory["Rss"], "pss": memory["Pss"],
            "anonymous": memory["Anonymous"], "descriptors": len(links), "threads": threads,
            "memory_files": sum(files.values()), "cpu_s": (int(fields[11]) + int(fields[12])) / TICKS,
            "shared": _mapped(proc),
        }  # fmt: skip
    return None


def role_of(comm: str, command: str) -> str:
    """The role of a process of apollod, from its name and its command line, else `other`."""
    told = f"{comm} {command}"
    return next((role for part, role in ROLES if part in told), "other")


def sizes(state: Path) -> dict[str, int]:
    """Bytes on the disk below a directory, by the names in it; `files`: the number of files."""
    found = {"files": 0}
    for directory, _, names in os.walk(state):
        part = Path(directory).relative_to(state).parts
        for name in names:
            with suppress(OSError):
                key = part[0] if part else name
                found[key] = found.get(key, 0) + os.lstat(os.path.join(directory, name)).st_blocks * 512
                found["files"] += 1
    return found


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name; none if the process is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return []


def _rollup(text: str) -> Iterator[tuple[str, int]]:
    for line in text.splitlines()[1:]:
        name, _, value = line.partition(":")
        yield name, int(value.split()[0]) << 10


def _links(directory: Path) -> Iterator[tuple[str, os.stat_result]]:
    for name in os.listdir(directory):
        with suppress(OSError):
            yield os.readlink(directory / name), os.stat(directory / name)


def _mapped(proc: Path) -> set[str]:
    """Files in /dev/shm that the process maps."""
    found = (line.partition(SHARED)[2] for line in (proc / "maps").read_text().splitlines() if SHARED in line)
    return {SHARED + name for name in found if not name.endswith("(deleted)")}


def _size(name: str) -> int:
    try:
        return os.stat(name).st_blocks * 512
    except OSError:
        return 0
