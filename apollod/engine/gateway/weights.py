"""The trainer's memory as the gateway sees it: the tensors of the checkpoint, one after another, in their stored
dtypes."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

import numpy as np

from apollod.errors import ModelRefused
from apollod.model.memory_table import tied_head
from apollod.store.fingerprint import Fingerprint
from apollod.store.model_files import StoredTensor, WeightFile, read_files
from apollod.wire.manifest import MISSING, OTHER, Manifest, lay_out, tensor_digest

if TYPE_CHECKING:
    import torch

TRAINABLE = ("bfloat16", "float16", "float32")
CHUNK_BYTES = 16 << 20  # read from a file at once, and summed at once; a multiple of four


class Memory(Protocol):
    """The bytes of one storage that trainer and gateway share."""

    def read(self, start: int, end: int) -> memoryview:
        """Their present values: a view in host memory, a copy of those of a device."""

    def fill(self, start: int, end: int, file: BinaryIO) -> bool:
        """Take them from where `file` stands; False if it ends before."""

    def flat(self) -> "torch.Tensor":
        """All of them by reference: uint8 [bytes]."""


class HostMemory:
    """A memory file that is mapped here."""

    def __init__(self, view: memoryview) -> None:
        self._view = view

    def read(self, start: int, end: int) -> memoryview:
        return self._view[start:end]

    def fill(self, start: int, end: int, file: BinaryIO) -> bool:
        count: int = file.readinto(self._view[start:end])  # type: ignore[attr-defined]  # of an open file
        return count == end - start

    def flat(self) -> "torch.Tensor":
        import torch

        return torch.frombuffer(self._view, dtype=torch.uint8)


class Weights:
    """All tensors of a model directory. Those of other dtypes than TRAINABLE never change and stay in its files."""

    def __init__(self, directory: Path, bridge: str) -> None:
        """Read the headers. Raises ModelRefused unless the directory holds whole safetensors files."""
        self.directory = directory
        self.files: tuple[WeightFile, ...] = read_files(directory)
        self.tensors: Mapping[str, StoredTensor] = {one.name: one for file in self.files for one in file.tensors}
        frozen = {name: "frozen" for name, one in self.tensors.items() if one.dtype not in TRAINABLE}
        self.manifest: Manifest = lay_out(directory, self.tensors, frozen, tied_head([*self.tensors]), bridge)
        self._entries = {one.name: one for one in self.manifest.tensors if one.status != "frozen"}
        self._memory: Memory = HostMemory(memoryview(b""))

    def load(self, memory: Memory | memoryview) -> None:
        """Fill the memory from the files. Raises ModelRefused for a file that ends early."""
        self._memory = HostMemory(memory) if isinstance(memory, memoryview) else memory
        for file in self.files:
            with (self.directory / file.name).open("rb") as opened:
                for tensor in file.tensors:
                    if (entry := self._entries.get(tensor.name)) is not None:
                        opened.seek(tensor.start)
                        if not self._memory.fill(entry.offset, entry.last_byte(), opened):
                            raise ModelRefused(f"{tensor.file} ends inside {tensor.name}", "copy the model again")

    @property
    def changing(self) -> list[str]:
        """Names of the tensors in memory, which the trainer may change."""
        return [*self._entries]

    def bytes_of(self, name: str) -> memoryview:
        """The present bytes of a tensor, in C order: a view of host memory, or a copy of those of a device, or of its
        file if it never changes."""
        if (entry := self._entries.get(name)) is not None:
            return self._memory.read(entry.offset, entry.last_byte())
        tensor = self.tensors[name]
        with (self.directory / tensor.file).open("rb") as file:
            file.seek(tensor.start)
            return memoryview(file.read(tensor.bytes))

    def pieces_of(self, name: str) -> Iterator[memoryview]:
        """The same, at most CHUNK_BYTES at a time."""
        if (entry := self._entries.get(name)) is None:
            data = self.bytes_of(name)
            yield from (data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES))
            return
        for start in range(entry.offset, entry.last_byte(), CHUNK_BYTES):
            yield self._memory.read(start, min(start + CHUNK_BYTES, entry.last_byte()))

    def tensor(self, name: str) -> "torch.Tensor":
        """A tensor that can change, by reference, where the memory is."""
        import torch

        entry, stored = self._entries[name], self.tensors[name]
        data = self._memory.flat()[entry.offset : entry.last_byte()]
        return data.view(getattr(torch, stored.dtype)).view(stored.shape)

    @property
    def bytes(self) -> int:
        """Total size of the tensors."""
        return sum(tensor.bytes for tensor in self.tensors.values())

    def fingerprint(self) -> str:
        """Fingerprint of the present bytes, as of a model directory."""
        found = Fingerprint()
        for name in self.tensors:
            offset = 0
            for piece in self.pieces_of(name):
                found.add(name, offset, np.frombuffer(piece, np.uint8))
                offset += len(piece)
        return found.text()

    def differing(self, names: list[str], digests: Mapping[str, str]) -> dict[str, str]:
        """Tensors that do not match the trainer's digests, with the reason."""
        found = {}
        for name in names:
            if name not in digests:
                found[name] = MISSING
            elif tensor_digest(self.bytes_of(name)) != digests[name]:
                found[name] = OTHER
        return found
