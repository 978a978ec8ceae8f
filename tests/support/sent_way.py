"""Bridges to engines elsewhere, for `BridgeConformance`: the trainer's end is a process that maps the gateway's memory
file; the engine is a server that loads what it is sent (`support.engine_elsewhere`), or a reader of files."""

import json
import os
import socket
import struct
import sys
from pathlib import Path

import anyio
import torch
from support.bridge_conformance import SIZE, End, Way, digest
from support.engine_elsewhere import EngineElsewhere

from apollod.bridges.facts import facts
from apollod.bridges.memory_file import SharedMemory, map_memory
from apollod.engine.gateway.__main__ import bridge_of
from apollod.engine.gateway.receivers import Receiver
from apollod.engine.gateway.weights import Weights
from apollod.reader import Reader
from apollod.wire import messages as msg
from apollod.wire.engine_terms import ReceiverTerms, SendTerms, SentBy
from apollod.wire.framing import encode_frame

LOADS = (
    "import json, os, urllib.request\n"
    "body = {'model_path': os.environ['APOLLOD_WEIGHTS'], 'weight_version': ''}\n"
    "url = os.environ['APOLLOD_RECEIVER'] + '/update_weights_from_disk'\n"
    "urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), method='POST'))\n"
)


class EngineThere:
    """What a conformance test asks of an engine's end."""

    def __init__(self, engine: EngineElsewhere, reader: Reader | None) -> None:
        self._engine, self._reader, self._data = engine, reader, engine.read()

    def digest(self) -> str:
        if self._reader is None:
            self._data = self._engine.read()
        elif (found := self._reader.poll()) is not None:
            self._data = bytes(found.tensors["w"].view(torch.uint8).numpy())
        return digest(self._data)

    def kill(self) -> None:
        self._engine.end()


class SentWay(Way):
    """A gateway's bridge over a model of one tensor with SIZE bytes."""

    def __init__(self, bridge: SentBy, root: Path) -> None:
        self.facts = facts(bridge)
        model = root / "model"
        model.mkdir()
        header = json.dumps({"w": {"dtype": "F16", "shape": [SIZE // 2], "data_offsets": [0, SIZE]}}).encode()
        (model / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(SIZE))
        (model / "config.json").write_text("{}")
        self._weights = Weights(model, bridge)
        size = self._weights.manifest.storages[0].bytes
        self._memory: SharedMemory | None = SharedMemory(size)
        self._weights.load(memoryview(map_memory(self._descriptor(), size)))
        self._there = EngineElsewhere(model)
        terms = ReceiverTerms(self._there.url, "vllm")
        command = (sys.executable, "-c", LOADS) if bridge == "restart" else ()
        sent = SendTerms(bridge, (terms,), str(root / "sent"), command, 60.0)
        self._receiver = terms
        self._bridge, self._version = bridge_of(sent, self._weights), 0
        self.engine = EngineThere(self._there, Reader(root / "sent") if bridge == "memmap" else None)  # type: ignore[assignment]
        self.trainer = self.another_trainer()

    def _descriptor(self) -> int:
        assert self._memory is not None
        return os.dup(self._memory.fd)

    def publish(self) -> None:
        self._version += 1

        async def send() -> None:
            receiver = Receiver(self._receiver, 60.0)
            staged = await anyio.to_thread.run_sync(self._bridge.stage, self._weights, self._version)
            await self._bridge.deliver(staged, receiver, lambda: None)
            await receiver.close()

        anyio.run(send)

    def another_trainer(self) -> End:
        here, there = socket.socketpair()
        with here, there:
            trainer = End("trainer", "memfd", str(there.fileno()), str(SIZE), descriptors=[there.fileno()])
            descriptor = self._descriptor()
            socket.send_fds(here, [encode_frame(msg.encode(msg.Share(SIZE)))], [descriptor])
            assert trainer.read() == {"ready": True}
        return trainer

    def release(self) -> None:
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def close(self) -> None:
        self.release()
        self.trainer.kill()
        self._there.end()
