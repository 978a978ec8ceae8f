"""CUDA's memory handles, by the driver's own functions: 64 bytes that let another process map the same device memory.

Not torch's `_share_cuda_` and `rebuild_cuda_tensor`. Those count references in a file of /dev/shm, so that each export
is good for one attach by a process that ends in order; a trainer that is killed and comes back would drive the count
below zero, or free memory still in use. The engine keeps its weights until it ends, so there is nothing to count:
the plain handle can be opened again by every later trainer, and it is plain data, never a pickle.

Source: cuda.h of CUDA 12 and 13. Nothing of CUDA is loaded before the first call, which needs a current context
(torch's).
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from apollod.errors import ShareRefused

HANDLE_BYTES = 64  # CU_IPC_HANDLE_SIZE
_LAZY_ENABLE_PEER_ACCESS = 1  # the only flag there is; the driver demands it
_IS_LEGACY_CUDA_IPC_CAPABLE = 10  # CUpointer_attribute
_NOT_SHAREABLE = "unset PYTORCH_ALLOC_CONF and PYTORCH_CUDA_ALLOC_CONF, and start the engine without sleep mode"


class _Handle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_ubyte * HANDLE_BYTES)]


class Exported(NamedTuple):
    """A handle for a whole allocation: `offset` is the position of the exported address in its `allocation` bytes."""

    handle: bytes
    offset: int
    allocation: int


def export(address: int) -> Exported:
    """The handle of the allocation that contains `address`. Raises ShareRefused for memory without one: expandable
    segments, vLLM's sleep allocator (cuMemCreate), a memory pool (cudaMallocAsync)."""
    pointer = ctypes.c_uint64(address)
    capable, base, size, handle = ctypes.c_int(0), ctypes.c_uint64(0), ctypes.c_size_t(0), _Handle()
    _call("cuPointerGetAttribute", ctypes.byref(capable), ctypes.c_int(_IS_LEGACY_CUDA_IPC_CAPABLE), pointer)
    if not capable.value:
        raise ShareRefused("the weights lie in device memory that CUDA IPC cannot share", _NOT_SHAREABLE)
    _call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), pointer)
    _call("cuIpcGetMemHandle", ctypes.byref(handle), base)
    return Exported(bytes(handle.reserved), address - base.value, size.value)


@cache
def open_handle(handle: bytes) -> int:
    """Map an allocation of another process; returns its address here. Mapped once per process: a trainer that attaches
    again gets the same address, and no count of openings grows. Raises ShareRefused as `map_handle` does."""
    return map_handle(handle)


def map_handle(handle: bytes) -> int:
    """Map an allocation of another process until `unmap`; returns its address here.

    Raises ShareRefused if the driver refuses: another GPU's handle, an exporter that has ended, or this process's own.
    """
    if len(handle) != HANDLE_BYTES:
        raise ShareRefused(
            f"a CUDA IPC handle has {HANDLE_BYTES} bytes, not {len(handle)}", "use one version of apollod everywhere"
        )
    address = ctypes.c_uint64(0)
    _call(
        "cuIpcOpenMemHandle_v2",
        ctypes.byref(address),
        _Handle.from_buffer_copy(handle),
        ctypes.c_uint(_LAZY_ENABLE_PEER_ACCESS),
    )
    return address.value


def unmap(address: int) -> None:
    """End what `map_handle` began. Raises ShareRefused."""
    _call("cuIpcCloseMemHandle", ctypes.c_uint64(address))


def allocation_bytes(address: int) -> int:
    """Size of the allocation that begins at `address`. Raises ShareRefused."""
    base, size = ctypes.c_uint64(0), ctypes.c_size_t(0)
    _call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(address))
    return size.value


def copy_to_host(address: int, into: memoryview) -> None:
    """Fill host memory from a device address, and wait for that. Raises ShareRefused."""
    target = (ctypes.c_ubyte * len(into)).from_buffer(into)
    _call("cuMemcpyDtoH_v2", ctypes.byref(target), ctypes.c_uint64(address), ctypes.c_size_t(len(into)))


def device_index(uuid: str, visible: Sequence[str]) -> int:
    """Index of the device with this UUID among the visible ones. Names and numbers differ between processes; NVML
    writes "GPU-" before a UUID, torch does not. Raises ShareRefused."""
    names = [_bare(name) for name in visible]
    if _bare(uuid) not in names:
        seen = ", ".join(visible) or "no device"
        raise ShareRefused(
            f"the device {uuid[:80]} is not visible here ({seen})", "give both the same CUDA_VISIBLE_DEVICES"
        )
    return names.index(_bare(uuid))


def _bare(uuid: str) -> str:
    return uuid.strip().lower().removeprefix("gpu-")


@cache
def _driver() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise ShareRefused(
            f"the CUDA driver cannot be loaded ({error})", "install it, or set APOLLOD_DEVICE=cpu"
        ) from error


def _call(function: str, *arguments: object) -> None:
    driver = _driver()
    code = getattr(driver, function)(*arguments)
    if code != 0:
        text = ctypes.c_char_p()
        driver.cuGetErrorString(ctypes.c_int(code), ctypes.byref(text))
        reason = (text.value or b"unknown error").decode()
        raise ShareRefused(
            f"{function} failed: {reason} ({code})", "give engine and trainer the same GPU, user and container"
        )
