"""Measures the peak memory of a function, above the level before."""

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any


def process_peak(run: Callable[[], Any]) -> float:
    """Bytes of this process (VmHWM after a reset, over VmRSS)."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts again from the present
    before = resident("VmRSS")
    run()
    return float(resident("VmHWM") - before)


def gpu_peak(run: Callable[[], Any]) -> float:
    """Bytes of torch's CUDA allocator."""
    import torch

    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    torch.cuda.synchronize()
    return float(torch.cuda.max_memory_allocated() - before)


def resident(field: str) -> int:
    """A field of /proc/self/status in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"no {field} in /proc/self/status")
