"""A Hugging Face model directory on disk, with its tensors read by torch. Headers: `apollod.store.model_files`."""

from dataclasses import dataclass
from pathlib import Path

import torch

from apollod.errors import ModelRefused
from apollod.store.model_files import StoredTensor, WeightFile, read_files

__all__ = ["ModelDir", "StoredTensor", "WeightFile"]


@dataclass(frozen=True)
class ModelDir:
    """The weights of a model directory; `tensors` by checkpoint name."""

    path: Path
    files: tuple[WeightFile, ...]
    tensors: dict[str, StoredTensor]

    @classmethod
    def open(cls, path: Path) -> "ModelDir":
        """Read all headers. Raises ModelRefused unless the directory holds whole safetensors files."""
        files = read_files(path)
        return cls(path, files, {tensor.name: tensor for file in files for tensor in file.tensors})

    def read(self, name: str) -> torch.Tensor:
        """A private copy of one tensor, CPU, in its stored dtype and shape."""
        stored = self.tensors[name]
        dtype: torch.dtype = getattr(torch, stored.dtype)
        if not stored.bytes:
            return torch.empty(stored.shape, dtype=dtype)
        buffer = bytearray(stored.bytes)
        with (self.path / stored.file).open("rb") as file:
            file.seek(stored.start)
            if file.readinto(buffer) != stored.bytes:
                raise ModelRefused(f"{self.path / stored.file} ends inside {name}", "copy the model again")
        return torch.frombuffer(buffer, dtype=dtype).view(stored.shape)
