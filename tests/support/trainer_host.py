"""A stand-in for supervisor and engine: owns the weights in a memory file and drives a real trainer process."""

import os
import socket
import subprocess
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import msgspec
from support.fork_server import fork_server
from support.model_memory import Memory

from apollod.supervisor.children import settled
from apollod.wire import messages as m
from apollod.wire.framing import FrameDecoder, encode_frame
from apollod.wire.manifest import Manifest

T = TypeVar("T")

_from_trainer = msgspec.msgpack.Decoder(m.ToSupervisor)


@dataclass
class Trainer:
    """One trainer process and the socket to it. `with` ends it."""

    directory: Path
    """where the socket is made"""
    threads: int = 1
    command: tuple[str, ...] = ("-m", "apollod.trainer")
    """what Python is to run"""
    environment: dict[str, str] = field(default_factory=dict)
    hello: m.Hello = field(init=False)

    def __post_init__(self) -> None:
        path = self.directory / f"{id(self):x}.sock"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen()
            listener.settimeout(60)
            environment = {
                **os.environ, "APOLLOD_SOCKET": str(path), "APOLLOD_TRAINER_THREADS": str(self.threads),
                **self.environment,
            }  # fmt: skip
            self.process = fork_server().start(self.command, environment)
            self._socket, _ = listener.accept()
        path.unlink()
        self._socket.settimeout(120)
        self._framing, self._frames = FrameDecoder(), deque[bytes]()
        self._early: m.CheckpointWritten | None = None
        self.hello = self.receive(m.Hello)

    def __enter__(self) -> "Trainer":
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
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
        """The next message, which has to be of this kind. A checkpoint's answer comes when it likes."""
        if kind is m.CheckpointWritten and (early := self._early) is not None:
            self._early = None
            assert isinstance(early, kind)
            return early
        message = self.receive_any()
        if isinstance(message, m.CheckpointWritten) and not isinstance(message, kind):
            self._early = message
            message = self.receive_any()
        assert isinstance(message, kind), message
        return message

    def receive_any(self) -> msgspec.Struct:
        """The next message, as it comes."""
        while not self._frames:
            data = self._socket.recv(1 << 20)
            assert data, f"the trainer left with {self.process.wait(20)}"
            self._frames.extend(self._framing.feed(data))
        message: msgspec.Struct = _from_trainer.decode(self._frames.popleft())
        return message

    def ask(self, message: msgspec.Struct, kind: type[T]) -> T:
        """Its answer, by which the supervisor knows, too, that this was answered."""
        self.send(message)
        answer = self.receive(kind)
        if not isinstance(message, m.AttachCopy):  # the supervisor asks no such thing
            assert isinstance(answer, msgspec.Struct) and settled(answer)[1] == message.__struct_config__.tag
        return answer

    # --- what the supervisor does -------------------------------------------------------------------------------

    def attach(
        self,
        memory: Memory,
        settings: m.OptimizerSettings,
        kind: type[T],
        fresh: bool = True,
        manifest: Manifest | None = None,
        gradient_checkpointing: bool = False,
        products: m.Products = "auto",
    ) -> T:
        self.send(m.Share(memory.manifest.storages[0].bytes), memory.fd)
        message = m.Attach(
            manifest or memory.manifest, settings, fresh, gradient_checkpointing=gradient_checkpointing,
            products=products,
        )  # fmt: skip
        return self.ask(message, kind)

    def step(self, step: int, record: bytes, lr: float = 1e-3, digest: str | None = None) -> m.StepDone:
        """Encode and learn one canonical record."""
        examples = self.examples(record) if digest is None else [m.StepExample("example", record, digest)]
        return self.ask(m.Step(step, examples, lr), m.StepDone)

    def examples(self, *records: bytes) -> list[m.StepExample]:
        """Canonical records with the digests of their tokens, as a step takes them."""
        results = self.ask(
            m.Encode([(f"example {i}", record) for i, record in enumerate(records)]), m.EncodeDone
        ).results
        return [m.StepExample(r.example, record, r.digest) for r, record in zip(results, records, strict=True)]

    def restore(
        self, path: Path | None, memory: Memory, weights: bool = True, fingerprint: str = "",
        checkpoints: Path | None = None,
        base: Path | None = None,
    ) -> m.Restored:  # fmt: skip
        return self.ask(restore(path, memory, weights, fingerprint, checkpoints, base), m.Restored)

    def checkpoint(
        self, step: int, path: Path, model_dir: Path | None = None, full: bool = False
    ) -> m.CheckpointWritten:
        return self.ask(m.WriteCheckpoint(step, str(path), str(model_dir or ""), full), m.CheckpointWritten)


def restore(
    path: Path | None, memory: Memory, weights: bool = True, fingerprint: str = "", checkpoints: Path | None = None,
    base: Path | None = None,
) -> m.Restore:  # fmt: skip
    """The message."""
    return m.Restore(
        "" if path is None else str(path),
        memory.manifest.model_dir,
        weights,
        fingerprint,
        str(checkpoints or ""),
        str(base or ""),
    )
