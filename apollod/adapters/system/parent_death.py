"""Makes a process die with its parent, whatever kills the parent.

SIGKILL of vLLM's API server orphans the engine core and its worker (vLLM issue 55510, seen with 0.32): they keep the
weights, the port's memory and a whole core. The kernel's parent-death signal is the only thing that survives SIGKILL.

Rule for this file: it imports only the standard library. `engine/site/sitecustomize.py` loads it by its path.
"""

import ctypes
import os
import signal
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


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
