"""Opens a trainer's memory on a GPU by the driver's handle, and copies out of it. Not run on a GPU yet.

It is closed after every call, since CUDA leaves a mapping undefined whose exporter has ended.
"""

from contextlib import suppress

import torch

from apollod.bridges import cuda_ipc
from apollod.errors import ReceiveFailed, ShareRefused
from apollod.wire.tensor_handles import DeviceBytes

_HINT = "lay the tensors into host memory (`tensor.cpu()`), or let both use the same GPU, user and container"


class DeviceMemory:
    """An allocation of another process, mapped into this one."""

    def __init__(self, handle: DeviceBytes) -> None:
        """Map it. Raises ReceiveFailed if the device is not visible here, or the driver refuses the handle."""
        try:
            visible = [str(torch.cuda.get_device_properties(i).uuid) for i in range(torch.cuda.device_count())]
            self._device = torch.device("cuda", cuda_ipc.device_index(handle.device_uuid, visible))
            torch.cuda.set_device(self._device)
            torch.cuda.synchronize(self._device)  # makes the context that the driver's calls need
            self._address = cuda_ipc.map_handle(handle.memory_handle)
        except ShareRefused as refused:
            raise ReceiveFailed(str(refused), _HINT) from refused
        try:
            self.bytes = cuda_ipc.allocation_bytes(self._address)
        except ShareRefused as refused:
            self.close()
            raise ReceiveFailed(str(refused), _HINT) from refused

    def check(self, offset: int, count: int) -> None:
        """Raise ReceiveFailed unless these bytes lie inside the allocation, as the driver knows it."""
        if offset < 0 or offset + count > self.bytes:
            raise ReceiveFailed(
                f"bytes {offset}..{offset + count} lie outside an allocation of {self.bytes}",
                "hand over the offset in the whole allocation, as the driver's cuMemGetAddressRange tells it",
            )

    def read(self, offset: int, into: memoryview) -> None:
        """Copy `into` from `offset` on. Raises ReceiveFailed."""
        torch.cuda.set_device(self._device)
        try:
            cuda_ipc.copy_to_host(self._address + offset, into)
        except ShareRefused as refused:
            raise ReceiveFailed(str(refused), "look whether the trainer still runs, and send again") from refused

    def close(self) -> None:
        """Unmap it; where its owner has ended meanwhile, nothing is left to unmap."""
        with suppress(ShareRefused):
            cuda_ipc.unmap(self._address)
