"""Sends the weights of a trainer of your own to a running apollod, which checks, writes, journals and serves them.

    from apollod.sender import Sender

    with Sender("http://127.0.0.1:8000") as sender:
        for step in range(steps):
            train(model)
            sender.send(model.named_parameters(), label=str(step))

Needs torch, and nothing of the daemon; `[control] enabled = true` in its configuration (docs/control.md). Tensors are
broadcast by gloo, so they may lie anywhere; with `bridge="tensor"` they go through shared memory of this machine, or
are handed over on the GPU where they lie. No pickle is involved. Sharded ones (DTensor, FSDP2) are gathered singly:
rank 0 sends, and all others call `take_part` with the same tensors at the same time.
"""

from __future__ import annotations

import base64
import fcntl
import json
import math
import os
import socket
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor

Named = tuple[str, Tensor]
POLL_S = 0.005
LEAVE_S = 5.0
"""longest wait for the answer when a group is left"""
SEGMENT = "apollod-sender-"
"""beginning of the names of segments of shared memory"""


class SendRefused(Exception):
    """apollod did not take the weights; it serves those of before. The message says why."""


class GlooGroup:
    """Rank 0 of a group of two processes, without any global state of torch.distributed. The store is here."""

    def __init__(self, name: str, timeout_s: float, address: str = "127.0.0.1", port: int = 0) -> None:
        """`address`: of this machine, as the other side reaches it; all listen there and nowhere else. `port` 0: a free
        one."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listening = socket.create_server((address, port), family=family)
        self.name, self.address, self.port = name, address, int(listening.getsockname()[1])
        self._limit = timedelta(seconds=timeout_s)
        self._store: Any = dist.TCPStore(  # type: ignore[attr-defined]
            address, self.port, 2, True, self._limit, wait_for_workers=False, master_listen_fd=listening.detach()
        )
        self._alone: int = self._store.num_keys()
        self._group: Any = None

    @property
    def init_info(self) -> dict[str, Any]:
        """Address and ranks for the other side to join, in the words of vLLM's weight transfer."""
        place = {"master_address": self.address, "master_port": self.port}
        return {"backend": "gloo", **place, "rank_offset": 1, "world_size": 2}

    def complete(self, refused: Callable[[], bool] = lambda: False) -> None:
        """Wait until the other side has joined. Raises RuntimeError after the time limit, or once it has `refused`."""
        while self._store.num_keys() <= self._alone:  # nobody else is there
            if refused():
                raise RuntimeError("the other side does not join")
            time.sleep(POLL_S)
        prefix = dist.PrefixStore(self.name, self._store)  # type: ignore[attr-defined]
        gloo: Any = dist.ProcessGroupGloo  # its stubs lack the constructor with options
        options = gloo._Options()
        options._devices, options._timeout = [gloo.create_device(hostname=self.address)], self._limit
        self._group = gloo(prefix, 0, 2, options)

    def broadcast(self, tensor: Tensor) -> None:
        """Send a tensor, and wait until it has been taken. Raises RuntimeError if the other side is gone."""
        options = dist.BroadcastOptions()
        options.rootRank = 0
        self._group.broadcast([tensor.detach().cpu().contiguous()], options).wait()

    def end(self) -> None:
        """Close the connection; whoever waits for a tensor is told."""
        self._group = self._store = None


class SharedSegment:
    """A file in /dev/shm, for tensor after tensor, which one process of this machine writes and another reads. It is
    removed by `end`, with this object, or at the end of the program; what a program left that was killed is removed by
    the next one."""

    init_info: Mapping[str, Any] = {"backend": "tensor"}
    """for the other side, in the words of vLLM's weight transfer"""

    def __init__(self, directory: str = "/dev/shm") -> None:
        """Make an empty one, for this user alone. Raises SendRefused."""
        _remove_of_the_dead(directory)
        try:
            self.path, self._descriptor = _locked_file(directory)
        except OSError as error:
            raise SendRefused(f"{directory} cannot be written ({error}); use bridge gloo") from error
        self.end = weakref.finalize(self, _remove, self.path, self._descriptor, os.getpid())

    def complete(self, refused: Callable[[], bool] = lambda: False) -> None:
        """There is nobody to wait for."""

    def handles(self, tensors: Iterable[Tensor]) -> list[dict[str, Any]]:
        """Write tensors over those before; says of each where it lies. One on a GPU stays there, if the driver has a
        handle for its memory. Raises SendRefused."""
        made, end, devices = list[dict[str, Any]](), 0, set[torch.device]()
        for tensor in tensors:
            if (handle := _device_handle(tensor)) is not None:
                devices.add(tensor.device)
            else:
                handle = {"file": self.path, "offset": end, "bytes": tensor.nbytes}
                self._write(tensor, end)
                end += tensor.nbytes
            made.append(handle)
        for device in devices:
            torch.cuda.synchronize(device)  # what computes the tensors has to be through
        return made

    def trim(self, most: int) -> None:
        """Give back what it has beyond so many bytes."""
        if os.fstat(self._descriptor).st_size > most:
            os.ftruncate(self._descriptor, most)

    def _write(self, tensor: Tensor, at: int) -> None:
        data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
        try:
            while data:
                written = os.pwrite(self._descriptor, data, at)
                data, at = data[written:], at + written
        except OSError as error:
            raise SendRefused(
                f"{self.path} cannot hold {at + len(data)} bytes ({error}); use smaller chunk_bytes, or bridge gloo"
            ) from error


class Sender:
    """A connection to an apollod. Not for several threads."""

    def __init__(
        self, url: str, key: str = "", chunk_bytes: int = 1 << 30, timeout_s: float = 300.0,
        bridge: Literal["gloo", "tensor"] = "gloo",
    ) -> None:  # fmt: skip
        """`url`: of the engine. `key`: one of its keys; not needed by the user that runs apollod on this machine.
        `chunk_bytes`: tensors of so many bytes are announced at once; `timeout_s`: longest wait for one answer.
        `bridge`: gloo, a broadcast; tensor, by shared memory or CUDA's handles, to an apollod of the same user on this
        machine. Shared memory takes `chunk_bytes`, or the size of the largest tensor."""
        if bridge not in ("gloo", "tensor"):
            raise ValueError(f"bridge is {bridge!r}; use gloo or tensor")
        self._url, self._key, self._bridge = url.rstrip("/"), key, bridge
        self._chunk_bytes, self._timeout_s = chunk_bytes, timeout_s
        self._way: GlooGroup | SharedSegment | None = None
        self._thread = ThreadPoolExecutor(1, "apollod-sender")

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, tensors: Iterable[Named], label: str = "") -> None:
        """Send tensors by their names in the checkpoint, and wait until they are served; all of them or none. Raises
        SendRefused. `label`: your name of the version."""
        whole = _gathered(tensors)
        try:
            self._send(whole, label)
        except Exception:
            for _ in whole:  # the other ranks go on gathering until the last tensor, and know of nothing
                pass
            raise

    def close(self) -> None:
        """Leave the group."""
        if self._way is not None:
            self._end()
            try:
                self._post("shutdown_weight_transfer_engine", limit_s=LEAVE_S)
            except SendRefused:
                pass  # it is gone, or leaves the group by itself
        self._thread.shutdown(wait=False)

    def _send(self, tensors: Iterable[Named], label: str) -> None:
        way = self._joined()
        self._post("start_weight_update")
        try:
            for chunk in _chunks(tensors, self._chunk_bytes):
                self._send_chunk(way, chunk)
            self._post("finish_weight_update", {"weight_version": label} if label else None)
        except BaseException:
            self._end()  # it may have half of a chunk: another group next time
            raise

    def _end(self) -> None:
        if self._way is not None:
            self._way.end()
            self._way = None

    def _joined(self) -> GlooGroup | SharedSegment:
        if self._way is None:
            way = (
                GlooGroup("vllm", self._timeout_s, _address_towards(self._url))
                if self._bridge == "gloo"
                else SharedSegment()
            )
            told = self._thread.submit(self._post, "init_weight_transfer_engine", {"init_info": way.init_info})
            try:
                _beside(told, lambda: way.complete(told.done))
            except BaseException:
                way.end()
                raise
            self._way = way
        return self._way

    def _send_chunk(self, way: GlooGroup | SharedSegment, chunk: list[Named]) -> None:
        info: dict[str, Any] = {
            "names": [name for name, _ in chunk],
            "dtype_names": [str(one.dtype).removeprefix("torch.") for _, one in chunk],
            "shapes": [list(one.shape) for _, one in chunk],
        }
        if isinstance(way, SharedSegment):
            info["handles"] = way.handles(one for _, one in chunk)
            self._post("update_weights", {"update_info": info})
            way.trim(self._chunk_bytes)
            return
        told = self._thread.submit(self._announced, info)

        def broadcast() -> None:
            for _, tensor in chunk:
                way.broadcast(tensor)

        _beside(told, broadcast)

    def _announced(self, info: dict[str, Any]) -> None:
        """Tell of tensors that are being broadcast. If they are refused, the other side leaves the group, so that the
        broadcast ends at once."""
        try:
            self._post("update_weights", {"update_info": info})
        except SendRefused:
            with suppress(SendRefused):
                self._post("shutdown_weight_transfer_engine")
            raise

    def _post(self, path: str, body: Any = None, limit_s: float = math.inf) -> None:
        data = json.dumps({} if body is None else body).encode()
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        request = urllib.request.Request(f"{self._url}/{path}", data, headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=min(self._timeout_s, limit_s)):
                return
        except urllib.error.HTTPError as error:
            raise SendRefused(f"POST /{path}: {_said(error.read())}") from error
        except OSError as error:
            raise SendRefused(f"POST /{path}: {error}") from error


def _beside(told: Any, work: Any) -> None:
    """Do the work while the request is answered; the request's refusal is the better reason of the two."""
    try:
        work()
    except RuntimeError as error:
        told.result()
        raise SendRefused(f"the broadcast failed: {error}") from error
    told.result()


def take_part(tensors: Iterable[Named]) -> None:
    """Take part in gathering sharded tensors, on every rank but the one that sends: with the same tensors, in the same
    order, whenever that one calls `Sender.send`. Returns when the last one is gathered, sent or not. Needs memory for
    one whole tensor."""
    for _ in _gathered(tensors):
        pass


def _gathered(tensors: Iterable[Named]) -> Iterator[Named]:
    """Whole tensors; a sharded one is gathered from all ranks when it is asked for."""
    for name, tensor in tensors:
        whole = getattr(tensor, "full_tensor", None)
        yield name, whole() if callable(whole) else tensor


def _chunks(tensors: Iterable[Named], most: int) -> Iterator[list[Named]]:
    """Lists of tensors with at most so many bytes each, or one tensor."""
    chunk, size = list[Named](), 0
    for name, one in tensors:
        if chunk and size + one.nbytes > most:
            yield chunk
            chunk, size = [], 0
        chunk.append((name, one))
        size += one.nbytes
    if chunk:
        yield chunk


def _device_handle(tensor: Tensor) -> dict[str, Any] | None:
    """Where a tensor lies on a GPU; None if it does not, or the driver has no handle for that memory. Not run on a GPU
    yet."""
    if not (tensor.is_cuda and tensor.is_contiguous() and tensor.nbytes):
        return None
    from apollod.bridges import cuda_ipc
    from apollod.errors import ShareRefused

    try:
        exported = cuda_ipc.export(tensor.data_ptr())
    except ShareRefused:
        return None
    return {
        "device_uuid": str(torch.cuda.get_device_properties(tensor.device).uuid),
        "memory_handle": base64.b64encode(exported.handle).decode(),
        "offset_bytes": exported.offset,
        "allocation_bytes": exported.allocation,
        "bytes": tensor.nbytes,
    }


def _locked_file(directory: str) -> tuple[str, int]:
    """Path and descriptor of a new file, whose lock this program has as long as it lives."""
    while True:
        descriptor, path = tempfile.mkstemp(prefix=SEGMENT, dir=directory)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return path, descriptor
        os.close(descriptor)  # taken for one of a program that has ended, before it was locked


def _remove(path: str, descriptor: int, owner: int) -> None:
    """Remove a segment, unless this is a copy of the program that made it (fork)."""
    if os.getpid() == owner:
        with suppress(OSError):
            os.unlink(path)
    os.close(descriptor)


def _remove_of_the_dead(directory: str) -> None:
    """Remove segments whose program has ended: nothing holds their lock."""
    for left in Path(directory).glob(f"{SEGMENT}*"):
        try:
            descriptor = os.open(left, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue  # another user's
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left.unlink()
        os.close(descriptor)


def _said(body: bytes) -> str:
    """The message of an answer that refuses."""
    try:
        error = json.loads(body)["error"]
        return str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError):
        return body[:500].decode(errors="replace")


def _address_towards(url: str) -> str:
    """This machine's address on the way to that URL: of a loopback address, a loopback address. Nothing is sent. Raises
    SendRefused."""
    place = urllib.parse.urlsplit(url)
    try:
        found = socket.getaddrinfo(place.hostname, place.port or 80, type=socket.SOCK_DGRAM)
        family, kind, protocol, _, target = min(found, key=lambda one: one[0] != socket.AF_INET)
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0])
    except (OSError, ValueError) as error:
        raise SendRefused(f"{url} leads nowhere: {error}") from error
