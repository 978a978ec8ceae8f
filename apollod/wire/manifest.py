"""The weight manifest: where each tensor of the checkpoint lives in the engine's memory.

The engine's loader writes it, the trainer binds a Hugging Face model by it. Offsets and lengths are in bytes, shapes
and strides in elements, dtypes by their torch name without the prefix ("bfloat16").
"""

from typing import Literal

import msgspec

from apollod.errors import ShareRefused

Bytes = bytes  # the name is taken by a field below
Status = Literal["live", "cast", "rederive", "frozen"]

ONE_VERSION = "engine and trainer must be of one version"
ITEM_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8, "int64": 8, "int32": 4, "int8": 1, "uint8": 1, "bool": 1}


class MemoryFile(msgspec.Struct, frozen=True, tag="memfd"):
    """An anonymous memory file of the supervisor; its descriptor travels beside the message (SCM_RIGHTS)."""

    bytes: int


class CudaHandle(msgspec.Struct, frozen=True, tag="cuda-ipc"):
    """A CUDA IPC handle: the arguments of torch's `rebuild_cuda_tensor` as plain data, one export an attach."""

    bytes: int
    device_uuid: str
    memory_handle: Bytes
    size_bytes: int
    offset_bytes: int
    ref_counter_handle: Bytes
    ref_counter_offset: int
    event_handle: Bytes
    event_sync_required: bool


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
    """All of one model. `tied` maps an alias (`lm_head.weight`) to the checkpoint name that stores it."""

    model_dir: str
    bridge: Literal["memfd", "cuda-ipc"]
    storages: tuple[Storage, ...]
    tensors: tuple[TensorEntry, ...]
    tied: dict[str, str] = {}

    def check(self) -> None:
        """Raise ShareRefused unless every view lies inside its storage and no name appears twice."""
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
                raise ShareRefused(f"{t.name}: bytes {t.offset}..{t.last_byte()} lie outside storage {t.storage} of {size}", ONE_VERSION)

    def count(self, status: Status) -> int:
        """Number of tensors with this status."""
        return sum(t.status == status for t in self.tensors)
