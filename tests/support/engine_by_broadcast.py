"""An engine elsewhere that takes broadcasts, for the order of calls and what they announce: gloo is in NCCL's place at
both ends. The group's id leads to the sender's store, as NCCL's own does."""

import base64
import json
import os
import socket
import struct
from collections.abc import Callable
from datetime import timedelta
from math import prod
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from support.engine_elsewhere import EngineElsewhere
from torch import Tensor

from apollod.errors import NcclFailed
from apollod.receiver.nccl_id import leads_to
from apollod.wire.engine_terms import ReceiverTerms

LIMIT = timedelta(seconds=20)
SAFETENSORS = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}
dist_: Any = dist


def group_of(store: Any, rank: int, limit: timedelta = LIMIT) -> Any:
    return dist_.ProcessGroupGloo(dist_.PrefixStore("g", store), rank, 2, limit)


def sent(group: Any, tensor: Tensor) -> None:
    options = dist_.BroadcastOptions()
    options.rootRank = 0
    group.broadcast([tensor], options).wait()


class GlooChannel:
    """`Channel` of apollod/engine/gateway/nccl_sending.py. `left` is called when it ends: gloo has nothing that ends a
    broadcast under way, as NCCL has, but the other end's departure does."""

    def __init__(
        self, receiver: ReceiverTerms, world_size: int, limit: timedelta = LIMIT, left: Callable[[], None] = bool
    ) -> None:
        self.receiver, self.world_size, self.limit, self.ended = receiver, world_size, limit, False
        self._left = left
        self.store = dist_.TCPStore("127.0.0.1", 0, 2, True, LIMIT, wait_for_workers=False)

    def place(self) -> dict[str, Any]:
        if self.receiver.dialect == "sglang":
            return {"master_address": "127.0.0.1", "master_port": self.store.port}
        at = socket.AF_INET.to_bytes(2, "little") + self.store.port.to_bytes(2, "big") + socket.inet_aton("127.0.0.1")
        return {"nccl_unique_id_b64": base64.b64encode((os.urandom(8) + at).ljust(128, b"\0")).decode()}

    def complete(self) -> None:
        if (store := self.store) is None:
            raise NcclFailed("the group was left")
        try:
            self.group = group_of(store, 0, self.limit)
        except RuntimeError as error:
            raise NcclFailed(f"nobody joined ({error})") from error

    def broadcast(self, tensor: Tensor) -> None:
        if self.ended:
            raise NcclFailed("the group was left")
        try:
            sent(self.group, tensor.contiguous())
        except RuntimeError as error:
            raise NcclFailed(f"the connection broke ({str(error)[:80]})") from error

    def end(self) -> None:
        self.ended, self.group, self.store = True, None, None
        self._left()


class EngineByBroadcast(EngineElsewhere):
    """Takes the tensors that it was announced, and has what a file of them says."""

    def __init__(self, model: Path, directory: Path) -> None:
        super().__init__(model)
        self.posted: list[tuple[str, dict[str, Any]]] = []
        self._directory, self._number = directory, 0
        self.group: Any = None

    def leave(self) -> None:
        """Leave the group."""
        self.group = None

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        self.posted.append((path, body))
        if path in self.refuses:
            return super().answer(path, body)
        match path:
            case "/init_weight_transfer_engine" | "/init_weights_update_group":
                self._join(body.get("init_info", body))
            case "/update_weights" | "/update_weights_from_distributed":
                info = body.get("update_info", body)
                self._receive(info["names"], info.get("dtype_names") or info["dtypes"], info["shapes"])
            case "/finish_weight_update":
                self.label = body["weight_version"]
            case "/start_weight_update" | "/begin_weight_update" | "/end_weight_update" | "/flush_cache":
                pass
            case _:
                return super().answer(path, body)
        self.calls.append(path)
        return 200, {"success": True}

    def _join(self, info: dict[str, Any]) -> None:
        port = info.get("master_port")
        if port is None:
            port = leads_to(base64.b64decode(info["nccl_unique_id_b64"])).port
        self._store = dist_.TCPStore("127.0.0.1", port, 2, False, LIMIT)
        self.group = group_of(self._store, info["rank_offset"])

    def _receive(self, names: list[str], dtypes: list[str], shapes: list[list[int]]) -> None:
        header, data, at = dict[str, Any](), b"", 0
        for name, dtype, shape in zip(names, dtypes, shapes, strict=True):
            room = torch.empty(prod(shape), dtype=getattr(torch, dtype))
            sent(self.group, room)
            header[name] = {"dtype": SAFETENSORS[dtype], "shape": shape, "data_offsets": [at, at + room.nbytes]}
            at += room.nbytes
            data += room.view(torch.uint8).numpy().tobytes()
        self._number += 1
        into = self._directory / f"received-{self._number}"
        into.mkdir()
        text = json.dumps(header).encode()
        (into / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
        self._load(into)
