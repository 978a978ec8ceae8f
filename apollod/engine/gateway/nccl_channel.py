"""Rank 0 of a group over NCCL, whose other ranks are the workers of a stock engine elsewhere. Not run yet: it takes two
GPUs.

To vLLM goes the group's id, in the request (`nccl_unique_id_b64`): no pickle, and no store. To SGLang goes the address
of a store here, in which `torch.distributed` of both sides exchanges the id as bytes. Both listen at the network
interface by which the engine is reached, and nowhere else.
"""

import base64
import os
import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import torch
import torch.distributed as dist
from torch import Tensor

from apollod.adapters.system import nccl_library
from apollod.adapters.system.network_interfaces import address_towards, interface_towards
from apollod.engine.gateway.device_memory import DEVICE
from apollod.engine.gateway.nccl_sending import GROUP, Channel
from apollod.errors import ApolloError, NcclFailed
from apollod.wire.engine_terms import ReceiverTerms, SendTerms

_dist: Any = dist  # its stubs lack what only builds for CUDA have


class NcclChannels:
    """Makes the channels of one gateway: NCCL knows one network interface a process, so all engines have to be reached
    by the same one as the first."""

    def __init__(self, terms: SendTerms) -> None:
        self._timeout_s = terms.timeout_s
        self._interface = ""

    def __call__(self, receiver: ReceiverTerms, world_size: int) -> Channel:
        """A channel for a group of so many processes. Blocks. Raises NcclFailed."""
        parts = urlsplit(receiver.url)
        host, port = parts.hostname or "", parts.port or 80
        try:
            interface, address = interface_towards(host, port), address_towards(host, port)
        except OSError as error:
            raise NcclFailed(
                f"there is no way to {host} ({error})", "look at the url of [[weights.receiver]]"
            ) from error
        if self._interface not in ("", interface):
            raise NcclFailed(
                f"{host} is reached by the network interface {interface}, other engines by {self._interface}",
                "give all engines urls on one network, or name its interfaces in NCCL_SOCKET_IFNAME",
            )
        self._interface = interface
        nccl_library.use_interface(interface)
        os.environ.update(nccl_library.TORCH_WAITS)
        torch.cuda.set_device(DEVICE)  # of this thread
        kind = _ToVllm if receiver.dialect == "vllm" else _ToSglang
        return kind(address, world_size, self._timeout_s)


class _ToVllm:
    """vLLM's communicator: NCCL's own, and a sum of one element before everything else
    (vllm/distributed/device_communicators/pynccl.py, `from_unique_id_bytes`)."""

    def __init__(self, address: str, world_size: int, timeout_s: float) -> None:
        self._world_size, self._timeout_s = world_size, timeout_s
        self._id = nccl_library.new_id()
        self._comm: nccl_library.Communicator | None = None
        self._ended, self._working = False, threading.Lock()

    def place(self) -> dict[str, Any]:
        return {"nccl_unique_id_b64": base64.b64encode(self._id).decode()}

    def complete(self) -> None:
        deadline = time.monotonic() + self._timeout_s
        with self._working:
            torch.cuda.set_device(DEVICE)  # of this thread
            comm = nccl_library.Communicator(self._id, 0, self._world_size, deadline, lambda: self._ended)
            self._comm = comm
            one = torch.zeros(1, device=torch.device("cuda", DEVICE))
            self._carry_out(comm, lambda stream: comm.sum_one(one.data_ptr(), stream, deadline), deadline)

    def broadcast(self, tensor: Tensor) -> None:
        at, count, dtype = tensor.data_ptr(), tensor.numel(), str(tensor.dtype).removeprefix("torch.")
        if not count:
            return  # NCCL drops a broadcast of nothing, on every side
        deadline = time.monotonic() + self._timeout_s
        with self._working:
            if (comm := self._comm) is None:
                raise _left()
            torch.cuda.set_device(DEVICE)
            self._carry_out(comm, lambda stream: comm.broadcast(at, count, dtype, stream, deadline), deadline)

    def _carry_out(self, comm: nccl_library.Communicator, call: Callable[[int], None], deadline: float) -> None:
        """Put a call into the current stream and wait until it is done; leave the group if that fails."""
        stream = torch.cuda.current_stream()
        try:
            call(stream.cuda_stream)
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(stream)
            comm.finish(event.query, deadline)
        except NcclFailed:
            self._comm = None
            comm.abort()
            raise

    def end(self) -> None:
        self._ended = True  # a thread that waits in a call leaves by itself
        threading.Thread(target=self._leave, daemon=True).start()

    def _leave(self) -> None:
        with self._working:
            if self._comm is not None:
                torch.cuda.set_device(DEVICE)
                comm, self._comm = self._comm, None
                comm.abort()


class _ToSglang:
    """The backend of `torch.distributed` over the chain of prefixes that SGLang's own group has
    (srt/utils/common.py, `init_custom_process_group`). Its communicator is made at the first broadcast."""

    def __init__(self, address: str, world_size: int, timeout_s: float) -> None:
        self._limit, self._world_size = timedelta(seconds=timeout_s), world_size
        self._listening = socket.create_server(
            (address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET
        )
        self._at = self._listening.getsockname()[:2]
        self._store: Any = _dist.TCPStore(
            self._at[0], self._at[1], world_size, True, self._limit, wait_for_workers=False,
            master_listen_fd=self._listening.detach(), use_libuv=False,
        )  # fmt: skip
        self._group: Any = None

    def place(self) -> dict[str, Any]:
        return {"master_address": self._at[0], "master_port": self._at[1]}

    def complete(self) -> None:
        if (listening := self._store) is None:  # the engine had refused before this thread began
            raise _left()
        torch.cuda.set_device(DEVICE)
        options = _dist.ProcessGroupNCCL.Options()
        options._timeout = self._limit
        prefix = _dist.PrefixStore
        store = prefix("cuda/", prefix(f"{GROUP}/", prefix(GROUP, listening)))
        self._group = _dist.ProcessGroupNCCL(store, 0, self._world_size, options)
        if self._store is None:  # it was left meanwhile
            self.end()
            raise _left()

    def broadcast(self, tensor: Tensor) -> None:
        if (group := self._group) is None:
            raise _left()
        torch.cuda.set_device(DEVICE)
        options = _dist.BroadcastOptions()
        options.rootRank, options.asyncOp, options.timeout = 0, True, self._limit
        try:
            group.broadcast([tensor], options).wait()  # blocks, and raises what went wrong: TORCH_WAITS
        except RuntimeError as error:
            raise _broken(error) from error

    def end(self) -> None:
        group, self._group, self._store = self._group, None, None
        if group is not None:
            threading.Thread(target=group.abort, daemon=True).start()


def _left() -> ApolloError:
    return NcclFailed("the group was left", "look at the error before this one")


def _broken(error: Exception) -> ApolloError:
    text = " ".join(str(error).split())[:200]
    return NcclFailed(f"the broadcast failed ({text})", "look whether the engine still runs, on GPUs of its own")
