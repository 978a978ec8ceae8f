"""One end of a bridge as a process: `python -m support.bridge_end ROLE KIND [...]`, ROLE engine or trainer.

A command a line on standard input, a JSON object a line on standard output; the first one says that the end is ready.
KIND `memfd` is the memory file of `shared`, `cuda-ipc` its device memory; `copied` is a bridge of the tests' own, whose
trainer works on a copy and has to publish it.
"""

import base64
import hashlib
import json
import socket
import sys
import time
from array import array
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from apollod.adapters.ipc.channel import Link
from apollod.bridges.memory_file import map_memory
from apollod.wire import messages as msg
from apollod.wire.manifest import CudaHandle


class Memory(Protocol):
    """The weights as this end sees them."""

    def read(self) -> bytes: ...
    def write(self, offset: int, data: bytes) -> None: ...
    def publish(self) -> None: ...


class Mapped:
    """A memory file, mapped as engine and trainer map it."""

    def __init__(self, link: Link) -> None:
        share = link.receive()
        assert isinstance(share, msg.Share), share
        self.map = map_memory(link.take_fd(), share.bytes)

    def read(self) -> bytes:
        return bytes(self.map)

    def write(self, offset: int, data: bytes) -> None:
        self.map[offset : offset + len(data)] = data

    def publish(self) -> None:
        """Nothing is left to do: the engine reads what was written."""


class Copied:
    """The trainer's end of a bridge that transfers: weights of its own, and a memory file that the engine reads."""

    def __init__(self, link: Link) -> None:
        self._engine = Mapped(link)
        self._own = bytearray(self._engine.read())

    def read(self) -> bytes:
        return bytes(self._own)

    def write(self, offset: int, data: bytes) -> None:
        self._own[offset : offset + len(data)] = data

    def publish(self) -> None:
        self._engine.write(0, bytes(self._own))


class OnDevice:
    """Device memory: one flat CUDA tensor, the engine's own or opened by its handle."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def read(self) -> bytes:
        return bytes(self._tensor.cpu().numpy().tobytes())

    def write(self, offset: int, data: bytes) -> None:
        import torch

        self._tensor[offset : offset + len(data)].copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        torch.cuda.synchronize()

    def publish(self) -> None:
        """Nothing is left to do: the engine reads what was written."""


def answer(**body: Any) -> None:
    sys.stdout.write(json.dumps(body) + "\n")
    sys.stdout.flush()


def memory_file_end(role: str, descriptor: str, size: str) -> Memory:
    memory = Mapped(linked(role, descriptor, size))
    answer(ready=True)
    return memory


def copied_end(role: str, descriptor: str, size: str) -> Memory:
    link = linked(role, descriptor, size)
    memory = Copied(link) if role == "trainer" else Mapped(link)
    answer(ready=True)
    return memory


def linked(role: str, descriptor: str, size: str) -> Link:
    """A connection over which the memory file comes, once the engine has asked for it."""
    link = Link(socket.socket(fileno=int(descriptor)))
    if role == "engine":
        link.send(msg.Reserve(int(size)))
    return link


def device_end(role: str, size: str) -> Memory:
    if role == "engine":
        import torch

        from apollod.engine.load.shared_parameters import export_cuda

        tensor = torch.zeros(int(size), dtype=torch.uint8, device="cuda")
        answer(ready=True, handle=base64.b64encode(msgspec.msgpack.encode(export_cuda(tensor))).decode())
    else:
        from apollod.trainer.bind.mapped_memory import open_cuda_handle

        handle = json.loads(sys.stdin.readline())
        tensor = open_cuda_handle(msgspec.msgpack.decode(base64.b64decode(handle), type=CudaHandle))
        answer(ready=True)
    return OnDevice(tensor)


ENDS: dict[str, Callable[..., Memory]] = {"memfd": memory_file_end, "copied": copied_end, "cuda-ipc": device_end}
"""By KIND: (role, what else was given) -> its memory, after it was said to be ready."""


def obey(memory: Memory, command: str, given: list[Any]) -> dict[str, Any]:
    match command:
        case "digest":
            return {"digest": hashlib.blake2b(memory.read()).hexdigest()}
        case "write":
            memory.write(given[0], bytes.fromhex(given[1]))
        case "publish":
            memory.publish()
        case "alternate":  # between these 16-bit elements, each written everywhere
            size, until, writes = len(memory.read()), time.monotonic() + given[0], 0
            while not writes or time.monotonic() < until:
                for element in given[1:]:
                    memory.write(0, array("H", [element]).tobytes() * (size // 2))
                    memory.publish()
                    writes += 1
            return {"writes": writes}
        case "watch":  # which 16-bit elements are ever seen
            until, reads, seen = time.monotonic() + given[0], 0, set[int]()
            while time.monotonic() < until:
                seen.update(array("H", memory.read()))
                reads += 1
            return {"reads": reads, "seen": sorted(seen)}
    return {"done": command}


def main(role: str, kind: str, *given: str) -> None:
    memory = ENDS[kind](role, *given)
    for line in sys.stdin:
        command, *rest = json.loads(line)
        answer(**obey(memory, command, rest))


if __name__ == "__main__":
    main(*sys.argv[1:])
