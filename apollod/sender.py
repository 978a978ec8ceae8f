"""Sends the weights of a trainer of your own to a running apollod, which checks, writes, journals and serves them.

    from apollod.sender import Sender

    with Sender("http://127.0.0.1:8000") as sender:
        for step in range(steps):
            train(model)
            sender.send(model.named_parameters(), label=str(step))

Needs torch, and nothing of the daemon; `[control] enabled = true` in its configuration (docs/control.md). Tensors are
broadcast by gloo, so they may lie anywhere; no pickle is involved. Sharded ones (DTensor, FSDP) are gathered singly.
"""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch import Tensor

Named = tuple[str, Tensor]


class SendRefused(Exception):
    """apollod did not take the weights; it serves those of before. The message says why."""


class GlooGroup:
    """Rank 0 of a group of two processes, without any global state of torch.distributed. The store is here."""

    def __init__(self, name: str, timeout_s: float, address: str = "127.0.0.1", port: int = 0) -> None:
        """`port` 0: a free one."""
        self.name, self.address, self.port = name, address, port or _free_port(address)
        self._limit = timedelta(seconds=timeout_s)
        self._store: Any = dist.TCPStore(  # type: ignore[attr-defined]
            address, self.port, 2, True, self._limit, wait_for_workers=False
        )
        self._group: Any = None

    @property
    def init_info(self) -> dict[str, Any]:
        """Address and ranks for the other side to join, in the words of vLLM's weight transfer."""
        place = {"master_address": self.address, "master_port": self.port}
        return {"backend": "gloo", **place, "rank_offset": 1, "world_size": 2}

    def complete(self) -> None:
        """Wait until the other side has joined. Raises RuntimeError after the time limit."""
        prefix = dist.PrefixStore(self.name, self._store)  # type: ignore[attr-defined]
        self._group = dist.ProcessGroupGloo(prefix, 0, 2, self._limit)

    def broadcast(self, tensor: Tensor) -> None:
        """Send a tensor, and wait until it has been taken. Raises RuntimeError if the other side is gone."""
        options = dist.BroadcastOptions()
        options.rootRank = 0
        self._group.broadcast([tensor.detach().cpu().contiguous()], options).wait()

    def end(self) -> None:
        """Close the connection; whoever waits for a tensor is told."""
        self._group = self._store = None


class Sender:
    """A connection to an apollod. Not for several threads."""

    def __init__(self, url: str, key: str = "", chunk_bytes: int = 1 << 30, timeout_s: float = 300.0) -> None:
        """`url`: of the engine. `key`: one of its keys; not needed by the user that runs apollod on this machine.
        `chunk_bytes`: tensors of so many bytes are announced at once; `timeout_s`: longest wait for one answer."""
        self._url, self._key = url.rstrip("/"), key
        self._chunk_bytes, self._timeout_s = chunk_bytes, timeout_s
        self._group: GlooGroup | None = None
        self._thread = ThreadPoolExecutor(1, "apollod-sender")

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, tensors: Iterable[Named], label: str = "") -> None:
        """Send tensors by their names in the checkpoint, and wait until they are served; all of them or none. Raises
        SendRefused. `label`: your name of the version."""
        group = self._joined()
        self._post("start_weight_update")
        try:
            for chunk in _chunks(tensors, self._chunk_bytes):
                self._broadcast(group, chunk)
            self._post("finish_weight_update", {"weight_version": label} if label else None)
        except BaseException:
            self._group = None  # it may have half of a chunk: another group next time
            raise

    def close(self) -> None:
        """Leave the group."""
        if self._group is not None:
            self._group = None
            try:
                self._post("shutdown_weight_transfer_engine")
            except SendRefused:
                pass  # it is gone, or leaves the group by itself
        self._thread.shutdown(wait=False)

    def _joined(self) -> GlooGroup:
        if self._group is None:
            group = GlooGroup("vllm", self._timeout_s)
            told = self._thread.submit(self._post, "init_weight_transfer_engine", {"init_info": group.init_info})
            _beside(told, group.complete)
            self._group = group
        return self._group

    def _broadcast(self, group: GlooGroup, chunk: list[Named]) -> None:
        info = {
            "names": [name for name, _ in chunk],
            "dtype_names": [str(one.dtype).removeprefix("torch.") for _, one in chunk],
            "shapes": [list(one.shape) for _, one in chunk],
        }
        told = self._thread.submit(self._post, "update_weights", {"update_info": info})

        def broadcast() -> None:
            for _, tensor in chunk:
                group.broadcast(tensor)

        _beside(told, broadcast)

    def _post(self, path: str, body: Any = None) -> None:
        data = json.dumps({} if body is None else body).encode()
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        request = urllib.request.Request(f"{self._url}/{path}", data, headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s):
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


def _chunks(tensors: Iterable[Named], most: int) -> Iterator[list[Named]]:
    """Lists of tensors with at most so many bytes each, or one tensor."""
    chunk, size = list[Named](), 0
    for name, tensor in tensors:
        whole = getattr(tensor, "full_tensor", None)
        one = whole() if callable(whole) else tensor
        if chunk and size + one.nbytes > most:
            yield chunk
            chunk, size = [], 0
        chunk.append((name, one))
        size += one.nbytes
    if chunk:
        yield chunk


def _said(body: bytes) -> str:
    """The message of an answer that refuses."""
    try:
        error = json.loads(body)["error"]
        return str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError):
        return body[:500].decode(errors="replace")


def _free_port(address: str) -> int:
    with socket.socket() as found:
        found.bind((address, 0))
        port: int = found.getsockname()[1]
        return port
