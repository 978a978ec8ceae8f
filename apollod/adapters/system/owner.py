"""A process that others depend on: identified by pid and start time, and watched for its end."""

import os
import select
import threading
from collections.abc import Callable
from pathlib import Path

from apollod.errors import ShareRefused
from apollod.wire.manifest import Process

_STARTTIME = 19  # of the fields after the command's name: proc_pid_stat(5), number 22


def this_process() -> Process:
    """The calling process."""
    return Process(os.getpid(), _started(os.getpid()))


def open_pidfd(process: Process) -> int:
    """Return a descriptor that becomes readable when `process` ends; raises ShareRefused if it has ended already.

    Pids are reused. So the start time is read after the descriptor is open: if it matches, the descriptor is of the
    right process, whatever ends from then on.
    """
    gone = ShareRefused(f"process {process.pid}, which holds the weights, has ended", "the engine is started again")
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError as error:
        raise gone from error
    try:
        if _started(process.pid) == process.started:
            return descriptor
    except OSError:
        pass  # it ended in between
    os.close(descriptor)
    raise gone


def when_ended(process: Process, act: Callable[[], None]) -> None:
    """Call `act` on a thread of its own as soon as `process` ends. Raises ShareRefused if it has ended already."""
    descriptor = open_pidfd(process)
    threading.Thread(target=_wait, args=(descriptor, act), name=f"watch-{process.pid}", daemon=True).start()


def _wait(descriptor: int, act: Callable[[], None]) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.poll()
    os.close(descriptor)
    act()


def _started(pid: int) -> int:
    """Clock ticks between the start of the machine and that of the process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[_STARTTIME])
