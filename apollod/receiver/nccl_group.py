"""A group of processes over NCCL in which rank 0 broadcasts. Not run yet: it takes two GPUs.

Three ways into one, as the senders have them: vLLM's, by an id that came with the request, or that the sender put into
its store (as a pickle, which is not unpickled); and SGLang's, by `torch.distributed` over its chain of prefixes.
Tensors come into memory of the first GPU that this process sees, as large as the largest broadcast, and go from there
to the host.

Source: vllm/distributed/weight_transfer/nccl_common.py and device_communicators/pynccl.py (0.26 to 0.32);
torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp (2.13).
"""

import os
import socket
import time
from ipaddress import ip_address
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import BroadcastOptions, Store

from apollod.adapters.system import nccl_library
from apollod.adapters.system.network_interfaces import address_towards, interface_towards
from apollod.errors import NcclFailed, ReceiveFailed
from apollod.receiver import meeting
from apollod.receiver.nccl_id import id_in_pickle, leads_to
from apollod.receiver.payload import UNWRITTEN
from apollod.wire.receiver_messages import Join

ID_KEY = "broadcast_from/0/0"
"""where vLLM's senders put the id: the first object of rank 0 (vllm/distributed/utils.py)"""
DEVICE = 0


class _Way(Protocol):
    """A group that has been joined."""

    def fill(self, into: torch.Tensor, deadline: float) -> None:
        """Fill device memory by the next broadcast until `deadline`. Raises NcclFailed or RuntimeError."""

    def abort(self) -> None:
        """Leave, whatever is under way."""


class NcclGroup:
    """A complete group, in which this process only receives. `timeout_s`: that of its `Join`."""

    def __init__(self, way: _Way, timeout_s: float) -> None:
        self._way, self.timeout_s = way, timeout_s
        self._scratch = torch.empty(0, dtype=torch.uint8)

    def receive(self, into: torch.Tensor, deadline: float) -> None:
        """Fill `into`, in host memory, by the next broadcast of rank 0 until `deadline` (`time.monotonic`), by way of
        device memory. The sender has to broadcast as many elements of this dtype. Raises ReceiveFailed."""
        if not into.numel():
            return  # NCCL drops a broadcast of nothing, on every side
        scratch = self._room(into.nbytes)
        scratch.fill_(UNWRITTEN)
        try:
            with meeting.killed_after(max(0.0, deadline - time.monotonic())):
                self._way.fill(scratch.view(into.dtype), deadline)
        except (NcclFailed, RuntimeError) as error:
            late = time.monotonic() >= deadline
            raise meeting.silent(self.timeout_s) if late else meeting.broken(error) from error
        into.view(torch.uint8).copy_(scratch)

    def _room(self, count: int) -> torch.Tensor:
        """Device memory of `count` bytes, in place of a smaller one."""
        if len(self._scratch) < count:
            self.rest()
            try:
                self._scratch = torch.empty(count, dtype=torch.uint8, device=torch.device("cuda", DEVICE))
            except torch.OutOfMemoryError as error:
                raise ReceiveFailed(
                    f"the GPU has no memory for a broadcast of {count} bytes",
                    "send fewer tensors in one broadcast, or leave room beside the engine ([engine] kv_cache_mib)",
                ) from error
        return self._scratch[:count]

    def rest(self) -> None:
        """Give the device memory back until the next broadcast: the engine is on the same GPU."""
        self._scratch = torch.empty(0, dtype=torch.uint8)
        torch.cuda.empty_cache()

    def leave(self) -> None:
        """Leave the group, also in the midst of a broadcast. The process is killed (SIGALRM) if that hangs."""
        self._scratch = torch.empty(0, dtype=torch.uint8)
        with meeting.killed_after(0.0):
            self._way.abort()


def join(wanted: Join) -> NcclGroup:
    """Join a group as its settings say, within their time limit. Raises ReceiveFailed; before any connection where
    there is no GPU, or where the id leads to an address that is not allowed. The process is killed (SIGALRM) where a
    library knows no limit."""
    meeting.check(wanted)
    if not torch.cuda.is_available():
        raise ReceiveFailed("a group of NCCL needs a GPU, and torch finds none here", "let the sender use gloo")
    with meeting.killed_after(wanted.timeout_s):
        deadline = time.monotonic() + wanted.timeout_s
        try:
            way = _by_torch(wanted, deadline) if wanted.style == "nested" else _by_id(wanted, deadline)
        except (NcclFailed, RuntimeError, ValueError, OSError) as error:
            raise meeting.incomplete(wanted, error) from error
    return NcclGroup(way, wanted.timeout_s)


def unique_id_of(wanted: Join, deadline: float) -> bytes:
    """The id of vLLM's group, from the request or from the sender's store, if it leads to where it may. Needs no GPU.
    Raises ReceiveFailed."""
    found = wanted.unique_id or _published(meeting.store_of(wanted, deadline), deadline)
    leads = leads_to(found)
    if not _is_allowed(str(leads.address), leads.port, wanted):
        raise ReceiveFailed(
            f"the id of the NCCL group leads to {leads.address}, which is not on this machine",
            "add that address to [control] addresses, or set NCCL_SOCKET_IFNAME for the trainer",
        )
    return found


def _published(store: Store, deadline: float) -> bytes:
    store.set_timeout(meeting.left(deadline))
    try:
        return id_in_pickle(bytes(store.get(ID_KEY)))
    except RuntimeError as error:
        raise ReceiveFailed(
            f"the sender's store has no id of an NCCL group ({meeting.shown(error)})",
            "let the sender make its communicator after its store; a sender over gloo has to ask for the backend gloo",
        ) from error


def _is_allowed(address: str, port: int, wanted: Join) -> bool:
    """True for addresses of this machine, for that of the store, and for those that are listed."""
    listed = [wanted.address, *wanted.addresses]
    if ip_address(address).is_loopback or address in listed:
        return True
    try:
        if address_towards(address, port) == address:
            return True
        return any(address == found[4][0] for name in listed if name for found in socket.getaddrinfo(name, None))
    except OSError:
        return False


class _ById:
    """vLLM's communicator: NCCL's own, and a sum of one element before everything else."""

    def __init__(self, unique_id: bytes, rank: int, world_size: int, deadline: float) -> None:
        self._comm = nccl_library.Communicator(unique_id, rank, world_size, deadline)
        one, stream = torch.zeros(1, device="cuda"), torch.cuda.current_stream()
        self._comm.sum_one(one.data_ptr(), stream.cuda_stream, deadline)
        self._finish(stream, deadline)

    def fill(self, into: torch.Tensor, deadline: float) -> None:
        name, stream = str(into.dtype).removeprefix("torch."), torch.cuda.current_stream()
        self._comm.broadcast(into.data_ptr(), into.numel(), name, stream.cuda_stream, deadline)
        self._finish(stream, deadline)

    def _finish(self, stream: torch.cuda.Stream, deadline: float) -> None:
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(stream)
        self._comm.finish(event.query, deadline)

    def abort(self) -> None:
        self._comm.abort()


class _ByTorch:
    """SGLang's: the backend of `torch.distributed`, which makes its communicator at the first broadcast. That takes as
    long as the sender lets it wait, so the process is killed (SIGALRM) if it does not come."""

    def __init__(self, store: Store, wanted: Join, deadline: float) -> None:
        kind: Any = dist.ProcessGroupNCCL  # only in builds for CUDA
        options = kind.Options()
        options._timeout = meeting.left(deadline)
        self._group = kind(store, wanted.rank, wanted.world_size, options)

    def fill(self, into: torch.Tensor, deadline: float) -> None:
        options = BroadcastOptions()
        options.rootRank = 0
        options.asyncOp = True
        options.timeout = meeting.left(deadline)
        self._group.broadcast([into], options).wait()  # blocks, and raises what went wrong: TORCH_WAITS

    def abort(self) -> None:
        self._group.abort()


def _by_id(wanted: Join, deadline: float) -> _Way:
    unique_id = unique_id_of(wanted, deadline)
    leads = leads_to(unique_id)
    _prepare(str(leads.address), leads.port)
    return _ById(unique_id, wanted.rank, wanted.world_size, deadline)


def _by_torch(wanted: Join, deadline: float) -> _Way:
    os.environ.update(nccl_library.TORCH_WAITS)
    _prepare(wanted.address, wanted.port)
    store = meeting.store_of(wanted, deadline)
    return _ByTorch(meeting.prefixed(store, wanted.group, wanted.style, "cuda"), wanted, deadline)


def _prepare(address: str, port: int) -> None:
    """Have NCCL listen only where the sender is."""
    nccl_library.use_interface(interface_towards(address, port))
    torch.cuda.set_device(DEVICE)
