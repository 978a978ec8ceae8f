"""Handles of tensors: where the bytes of one lie in memory of this machine, for another process to read them there."""

import msgspec

from apollod.errors import ShareRefused

Bytes = bytes  # the name is taken by a field below

DEVICE_HANDLE_BYTES = 64
"""of a CUipcMemHandle (cuda.h)"""


class HostBytes(msgspec.Struct, frozen=True, tag="host"):
    """The bytes `offset .. offset + bytes` of a file, which lies in shared memory (/dev/shm) or on a disk."""

    file: str
    offset: int
    bytes: int


class DeviceBytes(msgspec.Struct, frozen=True, tag="device"):
    """Device memory of another process: the bytes `offset_bytes .. offset_bytes + bytes` of an allocation of
    `allocation_bytes`.

    `memory_handle`: the driver's CUipcMemHandle of the whole allocation. `device_uuid`: with or without NVML's prefix
    "GPU-".
    """

    bytes: int
    device_uuid: str
    memory_handle: Bytes
    offset_bytes: int
    allocation_bytes: int

    def check(self) -> None:
        """Raise ShareRefused unless the bytes lie inside the allocation: other memory of its owner surrounds them."""
        if self.offset_bytes < 0 or self.bytes <= 0 or self.offset_bytes + self.bytes > self.allocation_bytes:
            raise ShareRefused(
                f"bytes {self.offset_bytes}..{self.offset_bytes + self.bytes} lie outside an allocation of "
                f"{self.allocation_bytes}",
                "use one version of apollod everywhere",
            )


Handle = HostBytes | DeviceBytes
