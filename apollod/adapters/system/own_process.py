"""Asks the kernel two things for the calling process: to die with its parent, whatever kills that, and to yield to
others.

SIGKILL of vLLM's API server orphans the engine core and its worker (vLLM issue 55510, seen with 0.32): they keep the
weights, the port's memory and a whole core. The kernel's parent-death signal is the only thing that survives SIGKILL.

Rule for this file: it imports only the standard library. `engine/site/sitecustomize.py` loads it by its path.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Callable

NICEST = 19
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}  # arch/x86/entry/syscalls/syscall_64.tbl, asm-generic/unistd.h
_WHO_PROCESS, _IDLE = 1, 3 << 13  # linux/ioprio.h


def die_with_supervisor() -> None:
    """Have the kernel kill this child when the supervisor, whose pid is in APOLLOD_PARENT_PID, dies; at once if it is
    already dead. Without that variable (started by hand): when the parent process dies."""
    supervisor = os.environ.get("APOLLOD_PARENT_PID")
    die_with_parent(lambda: supervisor is None or os.getppid() == int(supervisor))


def die_with_parent(parent_alive: Callable[[], bool]) -> None:
    """Ask the kernel to SIGKILL this process when the thread that started it ends; call from the main thread.

    `parent_alive` is called afterwards, since a parent that died before the request sends no signal. Raises OSError if
    the kernel refuses. Source: prctl(2), PR_SET_PDEATHSIG.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_PDEATHSIG): {os.strerror(number)}")
    if not parent_alive():
        os.kill(os.getpid(), signal.SIGKILL)


def yield_to_others() -> None:
    """Give this process, and its future children, the lowest priority for processor and disk. Keeps the present
    priority if the system refuses: this is courtesy, nothing depends on it."""
    try:
        os.setpriority(os.PRIO_PROCESS, 0, NICEST)
    except OSError as error:
        sys.stderr.write(f"apollod: the priority stays as it is ({error})\n")
    if (number := _IOPRIO_SET.get(os.uname().machine)) is not None:
        ctypes.CDLL(None, use_errno=True).syscall(number, _WHO_PROCESS, 0, _IDLE)
