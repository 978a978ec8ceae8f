"""A group of processes over gloo in which rank 0 broadcasts, without the global state of `torch.distributed`."""

import time
from typing import Any

import torch
from torch.distributed.distributed_c10d import BroadcastOptions, ProcessGroupGloo

from apollod.adapters.system.network_interfaces import address_towards
from apollod.errors import ReceiveFailed
from apollod.receiver import meeting
from apollod.wire.receiver_messages import Join

_Gloo: Any = ProcessGroupGloo  # its stubs lack the constructor with options


class GlooGroup:
    """A complete group, in which this process only receives. `timeout_s`: that of its `Join`."""

    def __init__(self, group: Any, timeout_s: float) -> None:
        self._group, self.timeout_s = group, timeout_s

    def receive(self, into: torch.Tensor, deadline: float) -> None:
        """Fill `into`, in host memory, by the next broadcast of rank 0 until `deadline` (`time.monotonic`). A shorter
        one fills the beginning; a longer one ends the process (gloo aborts). Raises ReceiveFailed."""
        options = BroadcastOptions()
        options.rootRank = 0
        options.timeout = meeting.left(deadline)
        try:
            # bytes, whatever the sender's dtype: gloo sends no dtype, and does not know all
            self._group.broadcast([into.view(torch.uint8)], options).wait()
        except RuntimeError as error:
            if time.monotonic() >= deadline:
                raise meeting.silent(self.timeout_s) from error
            raise meeting.broken(error) from error

    def rest(self) -> None:
        """Nothing is held between two receipts."""

    def leave(self) -> None:
        """The connection ends with this object."""


def join(wanted: Join) -> GlooGroup:
    """Join a group as its settings say, within their time limit. Raises ReceiveFailed. The process is killed (SIGALRM)
    if something else than a store takes the connection and is silent, which TCPStore waits for without a limit."""
    meeting.check(wanted)
    with meeting.killed_after(wanted.timeout_s):
        return _joined(wanted)


def _joined(wanted: Join) -> GlooGroup:
    if wanted.unique_id:
        raise ReceiveFailed("an id of NCCL names no group of gloo", "join it by the address of a store")
    deadline = time.monotonic() + wanted.timeout_s
    store = meeting.store_of(wanted, deadline)
    try:
        options = _Gloo._Options()
        options._devices = [_Gloo.create_device(hostname=address_towards(wanted.address, wanted.port))]
        options._timeout = meeting.left(deadline)
        prefixed = meeting.prefixed(store, wanted.group, wanted.style, "cpu")
        group = _Gloo(prefixed, wanted.rank, wanted.world_size, options)
    except (RuntimeError, ValueError, OSError) as error:
        raise meeting.incomplete(wanted, error) from error
    return GlooGroup(group, wanted.timeout_s)
