"""The weight manifest: where each tensor of the checkpoint lives in the engine's memory.

The engine's loader writes it, the trainer binds a Hugging Face model with it. Offsets and lengths are in bytes, shapes
and strides in elements, dtypes by their torch name without the prefix ("bfloat16").
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from apollod.errors import ShareRefused
from apollod.wire.tensor_handles import DeviceBytes

STALE = "the engine computes with an old copy"
OTHER = "the trainer holds other values"
MISSING = "the trainer does not hold it"
"""reasons for which a tensor differs between engine and trainer"""

Status = Literal["live", "cast", "rederive", "frozen"]

ALIGN = 256  # bytes; the strictest alignment of vectorised kernels
ONE_VERSION = "engine and trainer must be of one version"
ITEM_BYTES = {
    "bfloat16": 2,
    "float16": 2,
    "float32": 4,
    "float64": 8,
    "int64": 8,
    "int32": 4,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
SAFETENSORS = {
    "bfloat16": "BF16", "float16": "F16", "float32": "F32", "float64": "F64",
    "int64": "I64", "int32": "I32", "int8": "I8", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip
"""the name of a dtype in safetensors files"""


class MemoryFile(msgspec.Struct, frozen=True, tag="memfd"):
    """An anonymous memory file of the supervisor; its descriptor travels beside the message (SCM_RIGHTS)."""

    bytes: int


class Process(msgspec.Struct, frozen=True):
    """A process: `started` (clock ticks since boot, proc_pid_stat(5)) distinguishes it from a later process with the
    same pid."""

    pid: int
    started: int


class CudaHandle(DeviceBytes, frozen=True, tag="cuda-ipc"):
    """Device memory of the engine. The handle is valid for any number of attaches while `owner` lives."""

    owner: Process


Storage = MemoryFile | CudaHandle


class TensorEntry(msgspec.Struct, frozen=True):
    """One checkpoint tensor.

    `status`: live (the view is what the engine multiplies with), cast (same, but the engine holds a wider dtype),
    rederive (the engine keeps a derived copy that must be refreshed after a write), frozen (not trained).
    `dtype` is the dtype in the engine's memory, `stored_dtype` the dtype in the checkpoint.
    """

    name: str
    storage: int
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    stored_dtype: str
    status: Status
    reason: str = ""

    def last_byte(self) -> int:
        """Offset just past the last byte that the view can touch."""
        span = 1 + sum((n - 1) * s for n, s in zip(self.shape, self.stride, strict=True)) if all(self.shape) else 0
        return self.offset + span * ITEM_BYTES[self.dtype]


class Manifest(msgspec.Struct, frozen=True):
    """All tensors of one model. `tied` maps an alias (`lm_head.weight`) to the checkpoint name that stores it."""

    model_dir: str
    bridge: str
    """a name in `bridges.facts`, which refuses unknown ones"""
    storages: tuple[Storage, ...]
    tensors: tuple[TensorEntry, ...]
    tied: dict[str, str] = {}

    def check(self) -> None:
        """Raise ShareRefused unless every view lies inside its storage and no name appears twice."""
        for storage in self.storages:
            if isinstance(storage, CudaHandle):
                storage.check()
        seen: set[str] = set()
        for t in self.tensors:
            if t.name in seen:
                raise ShareRefused(f"the manifest names {t.name} twice", "report this model's architecture")
            seen.add(t.name)
            if t.status == "frozen":
                continue
            if t.dtype not in ITEM_BYTES or not 0 <= t.storage < len(self.storages):
                raise ShareRefused(f"{t.name}: unknown dtype {t.dtype} or storage {t.storage}", ONE_VERSION)
            size = self.storages[t.storage].bytes
            if t.offset < 0 or min(t.stride, default=0) < 0 or t.last_byte() > size:
                raise ShareRefused(
                    f"{t.name}: bytes {t.offset}..{t.last_byte()} lie outside storage {t.storage} of {size}",
                    ONE_VERSION,
                )

    def count(self, status: Status) -> int:
        """Number of tensors with this status."""
        return sum(t.status == status for t in self.tensors)


class Stored(Protocol):
    """A tensor of a checkpoint. `dtype`: its torch name."""

    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...


def lay_out(
    model_dir: Path, tensors: Mapping[str, Stored], held: Mapping[str, str], tied: dict[str, str], bridge: str = "memfd"
) -> Manifest:
    """A manifest of one memory file with room for all tensors of a model directory, one after another, each in the
    dtype that `held` names, else as stored; "frozen": not in memory."""
    entries, offset = [], 0
    for name, stored in tensors.items():
        if name in tied:
            continue
        frozen = held.get(name) == "frozen"
        dtype = stored.dtype if frozen else held.get(name, stored.dtype)
        stride = tuple(prod(stored.shape[i + 1 :]) for i in range(len(stored.shape)))
        status: Status = "frozen" if frozen else "live" if dtype == stored.dtype else "cast"
        entries.append(TensorEntry(name, 0, offset, stored.shape, stride, dtype, stored.dtype, status))
        if not frozen:
            offset += -(-prod(stored.shape) * ITEM_BYTES[dtype] // ALIGN) * ALIGN
    return Manifest(str(model_dir), bridge, (MemoryFile(offset),), tuple(entries), tied)


def safetensors_header(tensors: Iterable[tuple[str, str, Sequence[int]]]) -> bytes:
    """Length and header of a safetensors file whose data is that of these tensors (name, torch dtype, shape), in their
    order (github.com/huggingface/safetensors, "Format")."""
    entries, end = {}, 0
    for name, dtype, shape in tensors:
        start, end = end, end + prod(shape) * ITEM_BYTES[dtype]
        entries[name] = {"dtype": SAFETENSORS[dtype], "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def tensor_digest(data: Any) -> str:
    """BLAKE2b-64 (hex) of a tensor's bytes in memory, C order: engine and trainer compare these."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()
