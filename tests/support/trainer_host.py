"""A stand-in for supervisor and engine: owns the weights in a memory file and drives a real trainer process."""

import json
import os
import socket
import subprocess
import sys
from collections import deque
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import msgspec
import numpy as np

from apollod.wire import messages as m
from apollod.wire.framing import FrameDecoder, encode_frame
from apollod.wire.manifest import ITEM_BYTES, Manifest, MemoryFile, TensorEntry

ALIGN = 256
DTYPES = {"BF16": "bfloat16", "F32": "float32"}
T = TypeVar("T")

_from_trainer = msgspec.msgpack.Decoder(m.ToSupervisor)


@dataclass
class Memory:
    """A memory file filled from a model's single safetensors file: tensors one after another, A_log widened to float32."""

    manifest: Manifest
    fd: int
    bytes: np.ndarray[Any, np.dtype[np.uint8]]

    @classmethod
    def of(cls, model_dir: Path) -> "Memory":
        raw = (model_dir / "model.safetensors").read_bytes()
        start = 8 + int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8:start])
        header.pop("__metadata__", None)
        entries, pieces, offset = [], [], 0
        for name, tensor in header.items():
            begin, end = tensor["data_offsets"]
            data, stored = raw[start + begin : start + end], DTYPES[tensor["dtype"]]
            cast = name.endswith("A_log") and stored == "bfloat16"
            if cast:
                data = (np.frombuffer(data, "<u2").astype("<u4") << 16).tobytes()
            shape = tuple(tensor["shape"])
            entries.append(
                TensorEntry(
                    name, 0, offset, shape, tuple(prod(shape[i + 1 :]) for i in range(len(shape))),
                    "float32" if cast else stored, stored, "cast" if cast else "live",
                )
            )  # fmt: skip
            pieces.append((offset, data))
            offset += -(-len(data) // ALIGN) * ALIGN
        fd = os.memfd_create("weights", os.MFD_CLOEXEC)
        os.truncate(fd, offset)
        import mmap

        view = np.frombuffer(mmap.mmap(fd, offset), np.uint8)
        for at, data in pieces:
            view[at : at + len(data)] = np.frombuffer(data, np.uint8)
        return cls(Manifest(str(model_dir), "memfd", (MemoryFile(offset),), tuple(entries)), fd, view)

    def span(self, name: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The bytes of one tensor; writing into it writes the weights."""
        entry = next(t for t in self.manifest.tensors if t.name == name)
        return self.bytes[entry.offset : entry.offset + prod(entry.shape) * ITEM_BYTES[entry.dtype]]


@dataclass
class Trainer:
    """One trainer process and the socket to it. `with` ends it."""

    directory: Path
    """where the socket is made"""
    threads: int = 1
    command: tuple[str, ...] = ("-m", "apollod.trainer")
    """what Python is to run"""
    hello: m.Hello = field(init=False)

    def __post_init__(self) -> None:
        path = self.directory / f"{id(self):x}.sock"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen()
            listener.settimeout(60)
            environment = {
                **os.environ, "APOLLOD_SOCKET": str(path), "APOLLOD_PARENT_PID": str(os.getpid()),
                "APOLLOD_TRAINER_THREADS": str(self.threads),
            }  # fmt: skip
            self.process = subprocess.Popen([sys.executable, *self.command], env=environment)
            self._socket, _ = listener.accept()
        path.unlink()
        self._socket.settimeout(120)
        self._framing, self._frames = FrameDecoder(), deque[bytes]()
        self.hello = self.receive(m.Hello)

    def __enter__(self) -> "Trainer":
        return self

    def __exit__(self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        self._socket.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()

    def send(self, message: msgspec.Struct, fd: int | None = None) -> None:
        socket.send_fds(self._socket, [encode_frame(m.encode(message))], [] if fd is None else [fd])

    def receive(self, kind: type[T]) -> T:
        """The next message, which has to be of this kind."""
        while not self._frames:
            data = self._socket.recv(1 << 20)
            assert data, f"the trainer left with {self.process.wait(20)}"
            self._frames.extend(self._framing.feed(data))
        message = _from_trainer.decode(self._frames.popleft())
        assert isinstance(message, kind), message
        return message

    def ask(self, message: msgspec.Struct, kind: type[T]) -> T:
        self.send(message)
        return self.receive(kind)

    # --- what the supervisor does -------------------------------------------------------------------------------

    def attach(
        self, memory: Memory, settings: m.OptimizerSettings, kind: type[T], fresh: bool = True, manifest: Manifest | None = None
    ) -> T:
        self.send(m.Share(memory.manifest.storages[0].bytes), memory.fd)
        return self.ask(m.Attach(manifest or memory.manifest, settings, fresh), kind)

    def step(self, step: int, record: bytes, lr: float = 1e-3, digest: str | None = None) -> m.StepDone:
        """Encode and learn one canonical record."""
        examples = self.examples(record) if digest is None else [m.StepExample("example", record, digest)]
        return self.ask(m.Step(step, examples, lr), m.StepDone)

    def examples(self, *records: bytes) -> list[m.StepExample]:
        """Canonical records with the digests of their tokens, as a step takes them."""
        results = self.ask(m.Encode([(f"example {i}", record) for i, record in enumerate(records)]), m.EncodeDone).results
        return [m.StepExample(r.example, record, r.digest) for r, record in zip(results, records, strict=True)]

    def restore(self, path: Path | None, memory: Memory, weights: bool = True, fingerprint: str = "") -> m.Restored:
        where = "" if path is None else str(path)
        return self.ask(m.Restore(where, memory.manifest.model_dir, weights, fingerprint), m.Restored)

    def checkpoint(self, step: int, path: Path) -> m.CheckpointWritten:
        return self.ask(m.WriteCheckpoint(step, str(path)), m.CheckpointWritten)
