"""Where a group of processes meets: the settings of its joining, the sender's store, and the limits of time.

The store is only waited on for what the group's members tell of themselves: no object is read from it or put into it.
"""

import math
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from torch.distributed import TCPStore  # type: ignore[attr-defined]  # documented, yet not in its __all__
from torch.distributed.distributed_c10d import PrefixStore, Store

from apollod.errors import ReceiveFailed
from apollod.wire.receiver_messages import Join, Style

PORT_MIN = 1024  # below it are services of the system, of which none is a trainer's store
PORT_MAX = 65535
WORLD_MAX = 65536
TIMEOUT_MAX_S = 86_400.0
GROUP_MAX = 512  # characters of its name
OVERTIME_S = 2.0  # for torch's own limits to come first
SHOWN = 200  # characters of an error of torch


def check(wanted: Join) -> None:
    """Raise ReceiveFailed for settings that no group can have."""
    if not wanted.unique_id:
        if not wanted.address:
            raise ReceiveFailed("the store of the group has no address", "give the address of the sender")
        if not PORT_MIN <= wanted.port <= PORT_MAX:
            raise ReceiveFailed(f"the port of the store is {wanted.port}", f"use one from {PORT_MIN} to {PORT_MAX}")
    if not 0 < wanted.rank < wanted.world_size <= WORLD_MAX:
        raise ReceiveFailed(
            f"rank {wanted.rank} of {wanted.world_size} processes cannot receive",
            "let the sender be rank 0, and this process a rank below the world size",
        )
    if not 0 < wanted.timeout_s <= TIMEOUT_MAX_S:  # false for NaN, too
        raise ReceiveFailed(f"the time limit is {wanted.timeout_s} s", f"allow more than 0, at most {TIMEOUT_MAX_S:g}")
    if not 0 < len(wanted.group) <= GROUP_MAX:
        raise ReceiveFailed(f"the group's name has {len(wanted.group)} characters", f"use 1 to {GROUP_MAX}")


@contextmanager
def killed_after(seconds: float) -> Iterator[None]:
    """Have the process killed (SIGALRM) if the block lasts longer than this and OVERTIME_S: calls that have no limit of
    their own, as that of a store to something that takes the connection and is silent."""
    signal.setitimer(signal.ITIMER_REAL, seconds + OVERTIME_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def store_of(wanted: Join, deadline: float) -> Store:
    """The sender's store, connected until `deadline` (`time.monotonic`). Raises ReceiveFailed."""
    try:
        return TCPStore(wanted.address, wanted.port, wanted.world_size, False, left(deadline))
    except (RuntimeError, ValueError, OSError) as error:
        raise ReceiveFailed(
            f"no store of a group answers at {where(wanted)} ({shown(error)})",
            "let the sender make its TCPStore there before it asks, and look at address and port",
        ) from error


def prefixed(store: Store, group: str, style: Style, device: str) -> Store:
    """The store as the sender's group sees it. nested: what `torch.distributed` 2.13 makes of a group with a name
    (distributed_c10d.py, `_new_process_group_helper`), for the backend of `device`."""
    if style == "plain":
        return PrefixStore(group, store)
    return PrefixStore(f"{device}/", PrefixStore(f"{group}/", PrefixStore(group, store)))


def where(wanted: Join) -> str:
    """Address and port of the store, for people."""
    return f"{wanted.address}:{wanted.port}"


def left(deadline: float) -> timedelta:
    """Time until `deadline`, at least a millisecond: gloo counts in these, and takes 0 for no limit."""
    return timedelta(milliseconds=max(1, math.ceil((deadline - time.monotonic()) * 1000)))


def shown(error: Exception) -> str:
    """The error as a part of a line."""
    return " ".join(str(error).split())[:SHOWN]


def incomplete(wanted: Join, error: Exception) -> ReceiveFailed:
    """The error for a group that not all have joined."""
    place = f" at {where(wanted)}" if wanted.address else ""
    return ReceiveFailed(
        f"the group {wanted.group}{place} did not become complete ({shown(error)})",
        f"let all {wanted.world_size} processes use this group name, the backend {wanted.backend} and ranks of their "
        "own",
    )


def silent(timeout_s: float) -> ReceiveFailed:
    """The error for a sender that did not broadcast in time."""
    return ReceiveFailed(
        f"the sender did not broadcast all tensors within {timeout_s:g} s",
        "look whether it still runs; broadcast from rank 0 what was announced, or allow more time",
    )


def broken(error: Exception) -> ReceiveFailed:
    """The error for a connection to the sender that broke."""
    return ReceiveFailed(
        f"the connection to the sender broke ({shown(error)})", "look whether it still runs, and send again"
    )
