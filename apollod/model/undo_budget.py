"""Approximate host memory of the undo ring, and the number of steps that it holds. Pure.

A step in the ring has undo data for every weight that it wrote and a copy of the optimizer's state. The undo data takes
two bits per 16-bit weight and 16 more where the weight moved by more than one ulp: measured as 0.08 to 0.16 of the
weights at a learning rate of 1e-5, and up to 0.4 at the 1e-4 of direct corrections
(docs/benchmarks/2026-11-22-memory.md).
"""

from dataclasses import dataclass
from typing import Literal

from apollod.model.checkpoint_memory import copied_bytes
from apollod.model.memory_table import MemoryTable

PACKED_SHARE = 1 / 6
DIRECT = 2.4
"""size of a direct correction in ordinary steps; a ring too small for one gives up for good"""
STEPS = 6
"""steps worth their memory, even if each is a direct correction: further back, a checkpoint is near"""
LEAST = 1 << 30
"""least bytes of a budget, even if that is many more steps"""

UndoBytes = int | Literal["auto"]


@dataclass(frozen=True)
class UndoBudget:
    """`bytes` for the ring, `step` for one step. `refused`: reason for 0 bytes, if that was not configured."""

    bytes: int
    step: int
    refused: str = ""

    @property
    def steps(self) -> int:
        """Approximate number of steps that can be undone in memory."""
        return self.bytes // self.step if self.step else 0


def undo_budget(table: MemoryTable, wanted: UndoBytes, host_free: int, gpu: bool) -> UndoBudget:
    """The budget of the ring. `host_free`: free host memory before training starts; the copy for a checkpoint is
    subtracted, without a GPU also a step's memory, and half of the rest is left free."""
    copied = table.state_total - table.state.get("float32 master copy", 0)
    step = int(table.trained_bytes * PACKED_SHARE + copied)
    if wanted != "auto":
        return UndoBudget(wanted, step)
    free = host_free - copied_bytes(table.checkpoint, 0) - (0 if gpu else table.training)
    budget = min(max(LEAST, int(STEPS * DIRECT * step)), max(0, free) // 2)
    if budget >= DIRECT * step:
        return UndoBudget(budget, step)
    why = f"a step takes {step / 1e9:.1f} GB of host memory, a direct correction up to {DIRECT * step / 1e9:.1f}"
    left = f"{budget / 1e9:.1f} GB may be taken beside a checkpoint's copy"
    return UndoBudget(0, step, f"{why}; {left}; set [checkpoint] undo_bytes to take it all the same")
