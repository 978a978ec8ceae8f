"""Gives a process the lowest CPU and I/O priority."""

import ctypes
import os
import platform
import sys

NICEST = 19
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}  # arch/x86/entry/syscalls/syscall_64.tbl, asm-generic/unistd.h
_WHO_PROCESS, _IDLE = 1, 3 << 13  # linux/ioprio.h


def yield_to_others() -> None:
    """Give this process, and its future children, the lowest priority for processor and disk. Keeps the present
    priority if the system refuses: this is courtesy, nothing depends on it."""
    try:
        os.setpriority(os.PRIO_PROCESS, 0, NICEST)
    except OSError as error:
        sys.stderr.write(f"apollod: the priority stays as it is ({error})\n")
    if (number := _IOPRIO_SET.get(platform.machine())) is not None:
        ctypes.CDLL(None, use_errno=True).syscall(number, _WHO_PROCESS, 0, _IDLE)
