"""Measures this machine's memory: of its GPU, as `nvidia-smi` reports it, and of the host, within the limits of its
control groups. Loads nothing of CUDA."""

import os
import subprocess
from pathlib import Path

NVIDIA_SMI_S = 20.0
"""long, because the driver may have to load first"""
MIB = 1 << 20
PROC, CGROUP = Path("/proc"), Path("/sys/fs/cgroup")


def device_bytes() -> int | None:
    """Memory of CUDA's first GPU (CUDA_VISIBLE_DEVICES); None if `nvidia-smi` does not report it. Blocking."""
    return _device("memory.total")


def device_free_bytes() -> int | None:
    """Unused part of that memory."""
    return _device("memory.free")


def _device(field: str) -> int | None:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    command = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits", f"--id={visible or 0}"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=NVIDIA_SMI_S, check=True).stdout
        return int(told.split()[0]) * MIB
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None


def host_bytes() -> int:
    """All memory available to the processes of this machine, or of this control group."""
    return min([_meminfo("MemTotal"), *(limit for limit, _ in _limits())])


def host_free_bytes() -> int:
    """Part of that memory that can be allocated without swapping."""
    return min([_meminfo("MemAvailable"), *(max(0, limit - used) for limit, used in _limits())])


def _meminfo(field: str) -> int:
    lines = (PROC / "meminfo").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{field}:"))


def _limits() -> list[tuple[int, int]]:
    """(limit, use without memory that the kernel can drop) of our control group (version 2) and its ancestors that have
    a limit."""
    try:
        own = (PROC / "self" / "cgroup").read_text().split("0::", 1)[1].split("\n", 1)[0].lstrip("/")
    except (OSError, IndexError):
        return []
    found = []
    for group in (CGROUP / own, *(CGROUP / own).parents):
        try:
            limit, used = (group / "memory.max").read_text(), int((group / "memory.current").read_text())
            if limit.strip() != "max":
                found.append((int(limit), used - _droppable(group)))
        except (OSError, ValueError):
            continue
    return found


def _droppable(group: Path) -> int:
    lines = (group / "memory.stat").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("inactive_file ")), 0)
