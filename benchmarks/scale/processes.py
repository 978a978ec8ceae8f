"""Memory of a daemon's processes, as Linux counts it: proportional shares, and the number of copies of the weights."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

WEIGHTS = "/memfd:apollod-weights"


@dataclass(frozen=True)
class Taken:
    """Memory of a process and its descendants, in bytes. `pss`: each page divided by the number of processes that map
    it; `weights_*`: of the memory file of the weights; `anonymous`: heaps and stacks."""

    role: str
    processes: int
    rss: int
    pss: int
    anonymous: int
    weights_rss: int
    weights_pss: int


def taken(supervisor: int) -> list[Taken]:
    """The memory of supervisor, engine and trainer, each with its descendants."""
    children = _children()
    found = {_role(pid): list(_tree(pid, children)) for pid in children.get(supervisor, [])}
    return [_taken(role, pids) for role, pids in {"supervisor": [supervisor], **found}.items()]


def weights_file(supervisor: int) -> Path:
    """Path of the memory file, through a descriptor of the supervisor, which alone keeps one. Raises SystemExit without
    it."""
    for entry in Path(f"/proc/{supervisor}/fd").iterdir():
        try:
            if os.readlink(entry).startswith(WEIGHTS):
                return entry
        except FileNotFoundError:  # closed meanwhile
            continue
    raise SystemExit("the supervisor holds no memory file of weights: is a GPU in use? APOLLOD_DEVICE=cpu says no")


def weights_bytes(supervisor: int) -> int:
    """Memory of the file, regardless of mappings."""
    return os.stat(weights_file(supervisor)).st_blocks * 512


def weights_digest(supervisor: int) -> str:
    """SHA-256 of the whole file, computed without apollod."""
    with open(weights_file(supervisor), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _children() -> dict[int, list[int]]:
    """Child processes by parent, for all processes of this machine."""
    found: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # ended meanwhile
            found.setdefault(int(stat.read_text().rpartition(")")[2].split()[1]), []).append(int(stat.parent.name))
    return found


def _tree(pid: int, children: dict[int, list[int]]) -> Iterator[int]:
    """A process and all its descendants."""
    yield pid
    for child in children.get(pid, []):
        yield from _tree(child, children)


def _role(pid: int) -> str:
    """The role of a child of the supervisor, from its command line."""
    command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    named = (role for role in ("engine", "trainer") if f"apollod.{role}" in command)
    return next(named, command.partition(" ")[0].rpartition("/")[2])


def _taken(role: str, pids: list[int]) -> Taken:
    whole, weights, inside = dict.fromkeys(("Rss", "Pss", "Anonymous"), 0), dict.fromkeys(("Rss", "Pss"), 0), False
    for line in chain.from_iterable(Path(f"/proc/{pid}/smaps").read_text().splitlines() for pid in pids):
        name, _, rest = line.partition(":")
        if "-" in name.split(" ")[0]:  # a mapping: 7f..-7f.. rw-s ...
            inside = WEIGHTS in line
        elif name in whole:
            size = int(rest.split()[0]) * 1024
            whole[name] += size
            if inside and name in weights:
                weights[name] += size
    return Taken(role, len(pids), whole["Rss"], whole["Pss"], whole["Anonymous"], weights["Rss"], weights["Pss"])
