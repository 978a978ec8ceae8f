"""What the processes of a daemon take, as Linux counts it: proportional shares, and how often the weights are held."""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

WEIGHTS = "/memfd:apollod-weights"
PAGE = 4096


@dataclass(frozen=True)
class Taken:
    """One process, in bytes. `pss`: each page divided by the number of processes that have it; `weights_*`: of the
    memory file of the weights; `anonymous`: heaps and stacks."""

    role: str
    pid: int
    rss: int
    pss: int
    anonymous: int
    weights_rss: int
    weights_pss: int


def taken(supervisor: int) -> list[Taken]:
    """By the supervisor and all processes below it."""
    return [_taken(pid) for pid in _tree(supervisor)]


def weights_file(supervisor: int) -> Path:
    """The memory file, through a descriptor of the supervisor, who alone keeps one. Raises SystemExit without it."""
    for entry in Path(f"/proc/{supervisor}/fd").iterdir():
        try:
            if os.readlink(entry).startswith(WEIGHTS):
                return entry
        except FileNotFoundError:  # closed meanwhile
            continue
    raise SystemExit("the supervisor holds no memory file of weights: is a GPU in use? APOLLOD_DEVICE=cpu says no")


def weights_bytes(supervisor: int) -> int:
    """Memory that the file takes, whoever has mapped it."""
    return os.stat(weights_file(supervisor)).st_blocks * 512


def weights_digest(supervisor: int) -> str:
    """Of every byte of it, by nothing of ours."""
    with open(weights_file(supervisor), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def reset_peak(pid: int) -> None:
    """Let the peak of a process begin again at what it holds."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def held(pid: int, field: str) -> int:
    """A field of /proc/PID/status in bytes, such as VmHWM."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"no {field} in /proc/{pid}/status")


def _tree(root: int) -> Iterator[int]:
    """`root` and all below it."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        yield pid
        waiting += parents.get(pid, [])


def _taken(pid: int) -> Taken:
    whole, weights, inside = dict.fromkeys(("Rss", "Pss", "Anonymous"), 0), dict.fromkeys(("Rss", "Pss"), 0), False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        name, _, rest = line.partition(":")
        if "-" in name.split(" ")[0]:  # a mapping: 7f..-7f.. rw-s ...
            inside = WEIGHTS in line
        elif name in whole:
            whole[name] += int(rest.split()[0]) * 1024
            if inside and name in weights:
                weights[name] += int(rest.split()[0]) * 1024
    return Taken(_role(pid), pid, whole["Rss"], whole["Pss"], whole["Anonymous"], weights["Rss"], weights["Pss"])


def _role(pid: int) -> str:
    command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    for role in ("engine", "trainer"):
        if f"apollod.{role}" in command:
            return role
    return "supervisor" if "apollod run" in command else command.split(" ")[0].rpartition("/")[2]
