"""The trainer's memory on a GPU of this machine, for engines elsewhere: the gateway allocates it, the trainer maps it
by its CUDA handle and computes there, as with our own vLLM. Not run on a GPU yet."""

from typing import BinaryIO

import torch

from apollod.engine.load.shared_parameters import export_cuda
from apollod.errors import ShareRefused
from apollod.wire.manifest import CudaHandle

CHUNK_BYTES = 16 << 20  # from a file to the device at once
DEVICE = 0  # the first one that this process sees; the trainer finds it by its UUID


class DeviceMemory:
    """Bytes of a device, read and written in pieces; `Memory` of `weights`."""

    def __init__(self, flat: torch.Tensor) -> None:
        """`flat`: uint8 [bytes]; it is kept."""
        self._flat = flat

    def read(self, start: int, end: int) -> memoryview:
        return memoryview(self._flat[start:end].cpu().numpy().data)

    def fill(self, start: int, end: int, file: BinaryIO) -> bool:
        for first in range(start, end, CHUNK_BYTES):
            data = bytearray(file.read(min(CHUNK_BYTES, end - first)))
            if len(data) != min(CHUNK_BYTES, end - first):
                return False
            self._flat[first : first + len(data)].copy_(torch.frombuffer(data, dtype=torch.uint8))
        return True

    def flat(self) -> torch.Tensor:
        return self._flat


def on_device(count: int) -> tuple[DeviceMemory, CudaHandle]:
    """`count` bytes on the first GPU, and the handle by which another process maps them. Raises ShareRefused."""
    if not torch.cuda.is_available():
        raise ShareRefused(
            f"this machine has an NVIDIA GPU, and torch {torch.__version__} finds none",
            "install a torch for CUDA, or set APOLLOD_DEVICE=cpu to train in host memory",
        )
    device = torch.device("cuda", DEVICE)
    torch.cuda.set_device(device)
    try:
        flat = torch.empty(count, dtype=torch.uint8, device=device)
    except torch.OutOfMemoryError as error:
        raise ShareRefused(
            f"the GPU has no room for the weights, which are {count} bytes",
            "end what else uses it, or set APOLLOD_DEVICE=cpu to train in host memory",
        ) from error
    return DeviceMemory(flat), export_cuda(flat)
