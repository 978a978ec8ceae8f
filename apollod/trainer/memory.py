"""The engine's memory in this process: storages opened, tensors cut out of them as views.

A view never copies: what is written through it is what the engine multiplies with next.
"""

import mmap
import os

import torch

from apollod.errors import ShareRefused
from apollod.wire.manifest import CudaHandle, MemoryFile, TensorEntry

_ONE_VERSION = "engine and trainer must be of one version"


def open_memory_file(storage: MemoryFile, fd: int) -> torch.Tensor:
    """Map a memory file, shared and writable: uint8 [bytes], CPU. Takes over `fd` and closes it.

    Raises ShareRefused when the file is shorter than announced (a page behind its end would be SIGBUS later).
    """
    try:
        size = os.fstat(fd).st_size
        if not 0 < storage.bytes <= size:
            raise ShareRefused(f"a memory file of {storage.bytes} bytes is announced, it has {size}", _ONE_VERSION)
        return torch.frombuffer(mmap.mmap(fd, storage.bytes), dtype=torch.uint8)
    finally:
        os.close(fd)


def open_cuda_handle(storage: CudaHandle) -> torch.Tensor:
    """Map a storage of the engine's CUDA memory: uint8 [bytes], on the device with the handle's UUID.

    NOT RUN ON A GPU YET; written after vLLM's weight_cache/protocol.py (reference/vllm.md, section 3). A handle owns
    one reference count, so it may be opened once. The engine has to outlive every use of the result.
    """
    from torch.multiprocessing.reductions import rebuild_cuda_tensor

    uuid = storage.device_uuid.removeprefix("GPU-")  # NVML writes the prefix, torch does not
    uuids = [str(torch.cuda.get_device_properties(i).uuid) for i in range(torch.cuda.device_count())]
    if uuid not in uuids:
        seen = ", ".join(uuids) or "no device"
        raise ShareRefused(
            f"the engine's device {uuid} is not visible here ({seen})", "give both the same CUDA_VISIBLE_DEVICES"
        )
    tensor: torch.Tensor = rebuild_cuda_tensor(  # type: ignore[no-untyped-call]
        torch.Tensor, (storage.bytes,), (1,), 0,
        torch.UntypedStorage, torch.uint8, uuids.index(uuid),
        storage.memory_handle, storage.size_bytes, storage.offset_bytes, False,
        storage.ref_counter_handle, storage.ref_counter_offset, storage.event_handle, storage.event_sync_required,
    )  # fmt: skip
    return tensor


def view_of(memory: torch.Tensor, entry: TensorEntry) -> torch.Tensor:
    """The tensor of `entry` inside `memory` (uint8 [bytes]), by reference. `Manifest.check` has tested the bounds."""
    dtype: torch.dtype = getattr(torch, entry.dtype)
    if entry.offset % dtype.itemsize:
        raise ShareRefused(f"{entry.name} starts at byte {entry.offset}, not a multiple of {dtype.itemsize}", _ONE_VERSION)
    return memory[entry.offset : entry.last_byte()].view(dtype).as_strided(entry.shape, entry.stride)
