"""The engine's memory in this process: storages opened, tensors cut out of them as views.

A view never copies: a write through it changes the engine's next product.
"""

import os
from functools import cache

import torch

from apollod.adapters.system.owner import when_ended
from apollod.bridges import cuda_ipc
from apollod.bridges.memory_file import map_memory
from apollod.errors import ShareRefused
from apollod.wire.manifest import CudaHandle, Manifest, MemoryFile, Process, TensorEntry

EXIT_OWNER_GONE = 75  # EX_TEMPFAIL: the engine ended, and with it the memory; a new one has new memory
DEFAULT_PRIORITY = 0  # of CUDA streams; higher ones are negative

_ONE_VERSION = "engine and trainer must be of one version"


def open_storages(manifest: Manifest, fds: list[int]) -> list[torch.Tensor]:
    """All storages of the manifest, in order; takes over the descriptors."""
    files = sum(isinstance(storage, MemoryFile) for storage in manifest.storages)
    if files != len(fds):
        for fd in fds:
            os.close(fd)
        raise ShareRefused(f"{files} memory files are announced, {len(fds)} descriptors came", _ONE_VERSION)
    left = iter(fds)
    return [
        open_cuda_handle(s) if isinstance(s, CudaHandle) else open_memory_file(s, next(left)) for s in manifest.storages
    ]


def open_memory_file(storage: MemoryFile, fd: int) -> torch.Tensor:
    """Map a memory file, shared and writable: uint8 [bytes], CPU. Takes over `fd` and closes it.

    Raises ShareRefused when the file is shorter than announced.
    """
    return torch.frombuffer(map_memory(fd, storage.bytes), dtype=torch.uint8)


class _DeviceBytes:
    """Device memory at an address, for torch to wrap without a copy: numba's CUDA array interface, version 3."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
            "strides": None,
        }


def open_cuda_handle(storage: CudaHandle) -> torch.Tensor:
    """Map a storage of the engine's CUDA memory: uint8 [bytes], on the device with the handle's UUID. Not run on a GPU
    yet.

    From here on this process ends as soon as the engine does (EXIT_OWNER_GONE): CUDA leaves a mapping undefined whose
    exporter has ended. Raises ShareRefused if device or memory are not the announced ones.
    """
    storage.check()
    visible = [str(torch.cuda.get_device_properties(i).uuid) for i in range(torch.cuda.device_count())]
    device = torch.device("cuda", cuda_ipc.device_index(storage.device_uuid, visible))
    leave_with(storage.owner)
    torch.cuda.set_device(device)
    torch.cuda.synchronize(device)  # makes the context that the driver's call needs
    address = cuda_ipc.open_handle(storage.memory_handle) + storage.offset_bytes
    tensor: torch.Tensor = torch.as_tensor(_DeviceBytes(address, storage.bytes), device=device)
    if tensor.data_ptr() != address or tensor.device != device:
        raise ShareRefused("torch copied the engine's memory instead of mapping it", "report your version of torch")
    _give_way_once(device)
    return tensor


def give_way(device: torch.device) -> None:
    """Queue this thread's work, and with it the backward passes of its losses, on a stream of lower priority than the
    engine's, if the device has one.

    Today's devices have none: priority 0, the default of every stream, is the lowest. Priorities order the streams of
    one process anyway, and those of all clients under MPS; without it the GPU divides its time between processes,
    whatever their priorities.
    """
    least, _ = torch.cuda.Stream.priority_range()  # type: ignore[call-arg]
    if (priority := priority_below_default(least)) is not None:
        torch.cuda.set_stream(torch.cuda.Stream(device, priority=priority))  # type: ignore[no-untyped-call]


_give_way_once = cache(give_way)


def priority_below_default(least: int) -> int | None:
    """The lowest stream priority of a device, if it is below the default (numerically greater); else None."""
    return least if least > DEFAULT_PRIORITY else None


@cache
def leave_with(owner: Process) -> None:
    """End this process at once, without cleanup, when `owner` ends. Raises ShareRefused if it has already ended."""

    def leave() -> None:
        reason = f"the engine's process {owner.pid} ended; leaving before its memory is used"
        os.write(2, f"apollod trainer: error: {reason}\n".encode())
        os._exit(EXIT_OWNER_GONE)  # no cleanup: that would wait for the device, and free memory that is gone

    when_ended(owner, leave)


def view_of(memory: torch.Tensor, entry: TensorEntry) -> torch.Tensor:
    """The tensor of `entry` inside `memory` (uint8 [bytes]), by reference. Raises ShareRefused outside of it."""
    dtype: torch.dtype = getattr(torch, entry.dtype)
    if entry.offset < 0 or min(entry.stride, default=0) < 0 or entry.last_byte() > memory.numel():
        raise ShareRefused(
            f"{entry.name}: bytes {entry.offset}..{entry.last_byte()} of a storage of {memory.numel()}", _ONE_VERSION
        )
    if entry.offset % dtype.itemsize:
        raise ShareRefused(
            f"{entry.name} starts at byte {entry.offset}, not a multiple of {dtype.itemsize}", _ONE_VERSION
        )
    return memory[entry.offset : entry.last_byte()].view(dtype).as_strided(entry.shape, entry.stride)
