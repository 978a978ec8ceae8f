"""Opens all storages of a manifest."""

import os

import torch

from apollod.errors import ShareRefused
from apollod.trainer.bind.mapped_memory import open_cuda_handle, open_memory_file
from apollod.wire.manifest import CudaHandle, Manifest, MemoryFile


def open_storages(manifest: Manifest, fds: list[int]) -> list[torch.Tensor]:
    """All storages of the manifest, in order; takes over the descriptors."""
    files = sum(isinstance(storage, MemoryFile) for storage in manifest.storages)
    if files != len(fds):
        for fd in fds:
            os.close(fd)
        raise ShareRefused(
            f"{files} memory files are announced, {len(fds)} descriptors came",
            "engine and trainer must be of one version",
        )
    left = iter(fds)
    return [
        open_cuda_handle(s) if isinstance(s, CudaHandle) else open_memory_file(s, next(left)) for s in manifest.storages
    ]
