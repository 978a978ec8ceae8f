"""Computes the memory and disk space of a search for culprits beside the daemon, and checks that they are available.
Pure."""

from apollod.model.memory_plan import GB, MemoryPlan
from apollod.model.memory_table import MemoryTable

DISK_LEFT = 1_000_000_000
"""bytes reserved for the daemon's own writes: a full disk halts it"""


def memory_of(plan: MemoryPlan) -> int:
    """Memory of the process that runs the steps, on the device of `plan`, in bytes: its own weights and a step."""
    return plan.table.weights + plan.table.training + plan.trainer


def disk_of(table: MemoryTable) -> int:
    """Bytes of the weights and the optimizer state that every replay starts from, and temporarily of the weights before
    them, if those exist only as deltas."""
    return table.checkpoint + table.weights


def lacking_memory(plan: MemoryPlan, free: int) -> str:
    """The reason why a replay cannot run with so many bytes free; empty if it can."""
    if (needed := memory_of(plan)) <= free:
        return ""
    what = "GPU memory" if plan.device.gpu else "memory"
    return (
        f"a replay takes {_gb(needed)} of {what} beside what is served (weights {_gb(plan.table.weights)}, a step "
        f"{_gb(plan.table.training)}), and {_gb(free)} are free"
    )


def lacking_disk(table: MemoryTable, free: int) -> str:
    """The same for the disk of the state directory."""
    needed = disk_of(table)
    if needed + DISK_LEFT <= free:
        return ""
    return (
        f"replays keep {_gb(needed)} on disk, {_gb(DISK_LEFT)} have to be left for the daemon, and {_gb(free)} are free"
    )


def _gb(count: int) -> str:
    return f"{count / GB:.1f} GB"
