"""The trainer's memory as the gateway sees it: the tensors of the checkpoint, one after another, in their stored
dtypes."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from apollod.errors import ModelRefused
from apollod.model.memory_table import tied_head
from apollod.store.fingerprint import Fingerprint
from apollod.store.model_files import StoredTensor, WeightFile, read_files
from apollod.wire.manifest import MISSING, OTHER, Manifest, lay_out, tensor_digest

TRAINABLE = ("bfloat16", "float16", "float32")
CHUNK_BYTES = 16 << 20  # read from a file at once, and summed at once; a multiple of four


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
        self._memory = memoryview(b"")

    def load(self, memory: memoryview) -> None:
        """Fill the memory from the files. Raises ModelRefused for a file that ends early."""
        self._memory = memory
        for file in self.files:
            with (self.directory / file.name).open("rb") as opened:
                for tensor in file.tensors:
                    if tensor.name in self._entries:
                        opened.seek(tensor.start)
                        if opened.readinto(self.bytes_of(tensor.name)) != tensor.bytes:
                            raise ModelRefused(f"{tensor.file} ends inside {tensor.name}", "copy the model again")

    @property
    def changing(self) -> list[str]:
        """Names of the tensors in memory, which the trainer may change."""
        return [*self._entries]

    def bytes_of(self, name: str) -> memoryview:
        """The present bytes of a tensor, in C order: a view of the memory, or a copy from its file if it never
        changes."""
        if (entry := self._entries.get(name)) is not None:
            return self._memory[entry.offset : entry.last_byte()]
        tensor = self.tensors[name]
        with (self.directory / tensor.file).open("rb") as file:
            file.seek(tensor.start)
            return memoryview(file.read(tensor.bytes))

    @property
    def bytes(self) -> int:
        """Total size of the tensors."""
        return sum(tensor.bytes for tensor in self.tensors.values())

    def fingerprint(self) -> str:
        """Fingerprint of the present bytes, as of a model directory."""
        found = Fingerprint()
        for name in self.tensors:
            data = self.bytes_of(name)
            for offset in range(0, len(data), CHUNK_BYTES):
                found.add(name, offset, np.frombuffer(data[offset : offset + CHUNK_BYTES], np.uint8))
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
