"""A group of processes over gloo in which rank 0 broadcasts, without the global state of `torch.distributed`.

The store is only waited on for gloo's own addresses: no object is read from it or put into it.
"""

import math
import signal
import socket
import time
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # documented, yet not in its __all__
from torch.distributed.distributed_c10d import BroadcastOptions, PrefixStore, ProcessGroupGloo, Store

from apollod.errors import ReceiveFailed
from apollod.wire.receiver_messages import Join, Style

PORT_MIN = 1024  # below it are services of the system, of which none is a trainer's store
PORT_MAX = 65535
WORLD_MAX = 65536
TIMEOUT_MAX_S = 86_400.0
GROUP_MAX = 512  # characters of its name
OVERTIME_S = 2.0  # for torch's own limits to come first
SHOWN = 200  # characters of gloo's error

_Gloo: Any = ProcessGroupGloo  # its stubs lack the constructor with options


class GlooGroup:
    """A complete group, in which this process only receives. `timeout_s`: that of its `Join`."""

    def __init__(self, group: Any, timeout_s: float) -> None:
        self._group, self.timeout_s = group, timeout_s

    def receive(self, into: torch.Tensor, deadline: float) -> None:
        """Fill `into`, of bytes, by the next broadcast of rank 0 until `deadline` (`time.monotonic`). A shorter one
        fills the beginning; a longer one ends the process (gloo aborts). Raises ReceiveFailed."""
        options = BroadcastOptions()
        options.rootRank = 0
        options.timeout = _left(deadline)
        try:
            # bytes, whatever the sender's dtype: gloo sends no dtype, and does not know all
            self._group.broadcast([into], options).wait()
        except RuntimeError as error:
            if time.monotonic() >= deadline:
                raise ReceiveFailed(
                    f"the sender did not broadcast all tensors within {self.timeout_s:g} s",
                    "look whether it still runs; broadcast from rank 0 what was announced, or allow more time",
                ) from error
            raise ReceiveFailed(
                f"the connection to the sender broke ({_shown(error)})", "look whether it still runs, and send again"
            ) from error


def join(wanted: Join) -> GlooGroup:
    """Join a group as its settings say, within their time limit. Raises ReceiveFailed. The process is killed (SIGALRM)
    if something else than a store takes the connection and is silent, which TCPStore waits for without a limit."""
    _check(wanted)
    signal.setitimer(signal.ITIMER_REAL, wanted.timeout_s + OVERTIME_S)
    try:
        return _joined(wanted)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _joined(wanted: Join) -> GlooGroup:
    deadline = time.monotonic() + wanted.timeout_s
    where = f"{wanted.address}:{wanted.port}"
    try:
        store = TCPStore(wanted.address, wanted.port, wanted.world_size, False, _left(deadline))
    except (RuntimeError, ValueError, OSError) as error:
        raise ReceiveFailed(
            f"no store of a group answers at {where} ({_shown(error)})",
            "let the sender make its TCPStore there before it asks, and look at address and port",
        ) from error
    try:
        options = _Gloo._Options()
        options._devices = [_Gloo.create_device(hostname=address_towards(wanted.address, wanted.port))]
        options._timeout = _left(deadline)
        group = _Gloo(_prefixed(store, wanted.group, wanted.style), wanted.rank, wanted.world_size, options)
    except (RuntimeError, ValueError, OSError) as error:
        raise ReceiveFailed(
            f"the group {wanted.group} at {where} did not become complete ({_shown(error)})",
            f"let all {wanted.world_size} processes use this group name, the backend gloo and ranks of their own",
        ) from error
    return GlooGroup(group, wanted.timeout_s)


def _check(wanted: Join) -> None:
    """Raise ReceiveFailed for settings that no group can have."""
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


def address_towards(address: str, port: int) -> str:
    """This machine's address as seen from `address`, to listen at that one alone: of a loopback address, a loopback
    address. Gloo would take the one of the host's name, which may be a public one. Raises OSError."""
    found = socket.getaddrinfo(address, port, type=socket.SOCK_DGRAM)
    family, kind, protocol, _, target = min(found, key=lambda one: one[0] != socket.AF_INET)
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(target)  # of datagrams: only asks for the route, sends nothing
        return str(probe.getsockname()[0])


def _prefixed(store: Store, group: str, style: Style) -> Store:
    """The store as the sender's group sees it. nested: what `torch.distributed` 2.13 makes of a group with a name
    (distributed_c10d.py, `_new_process_group_helper`)."""
    if style == "plain":
        return PrefixStore(group, store)
    return PrefixStore("cpu/", PrefixStore(f"{group}/", PrefixStore(group, store)))


def _left(deadline: float) -> timedelta:
    """Time until `deadline`, at least a millisecond: gloo counts in these, and takes 0 for no limit."""
    return timedelta(milliseconds=max(1, math.ceil((deadline - time.monotonic()) * 1000)))


def _shown(error: Exception) -> str:
    return " ".join(str(error).split())[:SHOWN]
