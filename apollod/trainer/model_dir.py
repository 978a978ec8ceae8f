"""A Hugging Face model directory on disk: which safetensors file holds which tensor, and its bytes.

The format: 8 bytes little-endian length of the header, the header (JSON: name -> dtype, shape, data_offsets), data.
Read here rather than through the safetensors package because a checkpoint repeats the header of its source to the byte.
"""

import json
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch

from apollod.errors import ModelRefused
from apollod.wire.manifest import ITEM_BYTES

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
HEADER_BYTES_MAX = 100_000_000  # the format's own limit

DTYPES = {
    "BF16": "bfloat16", "F16": "float16", "F32": "float32", "F64": "float64",
    "I64": "int64", "I32": "int32", "I8": "int8", "U8": "uint8", "BOOL": "bool",
}  # fmt: skip


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a file. `dtype` by its torch name; `start` is the offset of its first byte in the file."""

    name: str
    file: str
    dtype: str
    shape: tuple[int, ...]
    start: int

    @property
    def bytes(self) -> int:
        """Bytes of data."""
        return prod(self.shape) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class WeightFile:
    """One safetensors file. `header`: its bytes up to the data; `tensors` in the order of their data."""

    name: str
    header: bytes
    tensors: tuple[StoredTensor, ...]


@dataclass(frozen=True)
class ModelDir:
    """The weights of a model directory; `tensors` by checkpoint name."""

    path: Path
    files: tuple[WeightFile, ...]
    tensors: dict[str, StoredTensor]

    @classmethod
    def open(cls, path: Path) -> "ModelDir":
        """Read all headers. Raises ModelRefused where the directory is not one of whole safetensors files."""
        files = tuple(_read_header(path, name) for name in _weight_files(path))
        tensors = [t for file in files for t in file.tensors]
        by_name = {t.name: t for t in tensors}
        if len(by_name) != len(tensors):
            twice = next(t.name for t in tensors if by_name[t.name] is not t)
            raise ModelRefused(f"two files of {path} hold {twice}", "remove files that are not part of the model")
        return cls(path, files, by_name)

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


def _weight_files(path: Path) -> list[str]:
    """Names of the safetensors files, sorted."""
    if (path / INDEX).is_file():
        try:
            names = sorted(set(json.loads((path / INDEX).read_bytes())["weight_map"].values()))
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise ModelRefused(f"{path / INDEX} is damaged ({error!r})", "copy the model again") from error
        if any(Path(name).name != name for name in names):
            raise ModelRefused(f"{path / INDEX} names files outside its directory", "copy the model again")
        return names
    if (path / SINGLE).is_file():
        return [SINGLE]
    raise ModelRefused(f"{path} holds neither {SINGLE} nor {INDEX}", "give a Hugging Face directory with safetensors weights")


def _read_header(path: Path, name: str) -> WeightFile:
    where = path / name
    try:
        with where.open("rb") as file:
            length = file.read(8)
            header_bytes = int.from_bytes(length, "little")
            if len(length) < 8 or header_bytes > HEADER_BYTES_MAX:
                raise ValueError(f"a header of {header_bytes} bytes")
            header = file.read(header_bytes)
            file_bytes = file.seek(0, 2)
        table: dict[str, Any] = json.loads(header)
        table.pop("__metadata__", None)
        tensors = [_stored(tensor, name, entry, 8 + header_bytes) for tensor, entry in table.items()]
    except OSError as error:
        raise ModelRefused(f"{where} cannot be read ({error.strerror})", "copy the model again") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelRefused(f"{where} is no safetensors file ({error!r})", "copy the model again") from error
    tensors.sort(key=lambda t: (t.start, t.bytes))
    end = 8 + header_bytes
    for tensor in tensors:  # data without gaps or overlaps up to the end of the file: the format's rule
        if tensor.start != end:
            raise ModelRefused(f"{where}: {tensor.name} starts at byte {tensor.start}, not {end}", "copy the model again")
        end += tensor.bytes
    if end != file_bytes:
        raise ModelRefused(f"{where} has {file_bytes} bytes, its header says {end}", "copy the model again")
    return WeightFile(name, length + header, tuple(tensors))


def _stored(name: str, file: str, entry: dict[str, Any], data_start: int) -> StoredTensor:
    if entry["dtype"] not in DTYPES:
        raise ModelRefused(f"{name} in {file} is stored as {entry['dtype']}", "quantized weights cannot be trained in place")
    begin, end = (int(offset) for offset in entry["data_offsets"])
    stored = StoredTensor(name, file, DTYPES[entry["dtype"]], tuple(int(n) for n in entry["shape"]), data_start + begin)
    if begin < 0 or min(stored.shape, default=0) < 0 or end - begin != stored.bytes:
        raise ValueError(f"{name} of shape {list(stored.shape)} in {end - begin} bytes")
    return stored
