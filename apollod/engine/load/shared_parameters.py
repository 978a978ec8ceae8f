"""Moves a model's parameters into memory that another process can map, before the checkpoint is loaded into it.

One flat storage (CPU) or a few (CUDA) instead of one allocation per parameter: we choose the alignment, no foreign
tensor shares the memory, and the manifest needs no handle for each parameter.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import nn

from apollod.adapters.system.owner import this_process
from apollod.bridges import cuda_ipc
from apollod.bridges.memory_file import map_memory
from apollod.errors import ShareRefused
from apollod.wire.manifest import CudaHandle, MemoryFile, Storage

ALIGN = 256  # bytes: like CUDA's allocator, and enough for any vector load
CHUNK_BYTES = 1 << 30  # CUDA: flat storages of about this size, so that moving never needs the model twice


@dataclass(frozen=True)
class Region:
    """One storage of the model inside a shared storage: bytes `offset .. offset + nbytes`, mapped here at `address`.

    `names` are all parameters in it: several if weights are tied.
    """

    storage: int
    offset: int
    nbytes: int
    address: int
    names: tuple[str, ...]


@dataclass
class Placement:
    """The places of the parameters. `flats[i]` is uint8 [bytes] and backs `storages[i]`; it keeps the mapping alive."""

    bridge: str
    storages: tuple[Storage, ...]
    flats: list[torch.Tensor]
    regions: list[Region]
    addresses: dict[str, int]
    """parameter name -> its data pointer after the move"""

    def view(
        self, storage: int, dtype: torch.dtype, offset: int, shape: tuple[int, ...], stride: tuple[int, ...]
    ) -> torch.Tensor:
        """A tensor over the shared memory; `offset` and `stride` count elements of `dtype`."""
        return self.flats[storage].view(dtype).as_strided(shape, stride, offset)


@dataclass
class _Group:
    """Parameters that share one storage, to be moved together."""

    nbytes: int
    named: list[tuple[str, nn.Parameter]] = field(default_factory=list)


def place_cpu(model: nn.Module, reserve: Callable[[int], int]) -> Placement:
    """Move all parameters into one memory file. `reserve(bytes)` returns its descriptor, which is closed here.

    The mapping lives as long as a tensor over it: storage -> buffer -> mmap. Raises ShareRefused if the file is short.
    """
    groups = list(_groups(model))
    total = _aligned_total(groups)
    flat = torch.frombuffer(map_memory(reserve(total), total), dtype=torch.uint8)
    placement = Placement("memfd", (MemoryFile(total),), [flat], [], {})
    _move(groups, placement, 0)
    return placement


def place_cuda(model: nn.Module) -> Placement:
    """Move all parameters into flat CUDA tensors of about CHUNK_BYTES, each with its IPC handle. Not run on a GPU yet.

    Call it before CUDA graphs are captured: those hold addresses. Raises ShareRefused for memory without a handle.
    """
    placement = Placement("cuda-ipc", (), [], [], {})
    chunk: list[_Group] = []
    groups = list(_groups(model))
    for group in groups:
        chunk.append(group)
        if _aligned_total(chunk) >= CHUNK_BYTES or group is groups[-1]:
            placement.flats.append(torch.empty(_aligned_total(chunk), dtype=torch.uint8, device="cuda"))
            _move(chunk, placement, len(placement.flats) - 1)
            chunk = []
            torch.cuda.empty_cache()  # frees the old allocations of this chunk before the next
    placement.storages = tuple(export_cuda(flat) for flat in placement.flats)
    return placement


def export_cuda(flat: torch.Tensor) -> CudaHandle:
    """The handle of one flat uint8 CUDA tensor, as plain data. The tensor must live as long as this process."""
    torch.cuda.synchronize(flat.device)  # complete queued work on this memory before sharing it
    exported = cuda_ipc.export(flat.data_ptr())
    return CudaHandle(
        bytes=flat.numel(),
        device_uuid=str(torch.cuda.get_device_properties(flat.device).uuid),
        memory_handle=exported.handle,
        offset_bytes=exported.offset,
        allocation_bytes=exported.allocation,
        owner=this_process(),
    )


def _groups(model: nn.Module) -> Iterator[_Group]:
    """Parameters by storage, in the order of the model. Tied parameters, also two objects over one storage, stay
    tied."""
    groups: dict[int, _Group] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        storage = parameter.untyped_storage()
        if parameter.is_meta:
            raise ShareRefused(
                f"{name} has no memory yet (meta device)", "load without --quantization and without offloading"
            )
        if storage.nbytes():
            groups.setdefault(storage.data_ptr(), _Group(storage.nbytes())).named.append((name, parameter))
    yield from groups.values()


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGN) * ALIGN


def _aligned_total(groups: list[_Group]) -> int:
    return sum(_aligned(group.nbytes) for group in groups)


def _move(groups: list[_Group], placement: Placement, storage: int) -> None:
    """Lay the groups out in flat storage number `storage`, keep their contents, and repoint the parameters."""
    start = 0
    for group in groups:
        moved: dict[int, torch.Tensor] = {}
        for name, parameter in group.named:
            if id(parameter) not in moved:
                old = parameter.data
                offset = start // old.element_size() + int(old.storage_offset())
                new = placement.view(storage, old.dtype, offset, tuple(old.shape), old.stride())
                new.copy_(old)  # parameters outside the checkpoint keep their initial values
                parameter.data = moved[id(parameter)] = new
            placement.addresses[name] = parameter.data_ptr()
        names = tuple(name for name, _ in group.named)
        placement.regions.append(
            Region(storage, start, group.nbytes, placement.flats[storage].data_ptr() + start, names)
        )
        start += _aligned(group.nbytes)
