"""Handles of tensors as trainers send them with backend `tensor`: a place in a file of this machine, or in a GPU's
memory. What lies there is looked at by the process that reads it. Everything raises BadCall.

Source: the form of a CUDA handle is that of the driver's cuIpcGetMemHandle and cuMemGetAddressRange.
"""

from math import prod

import msgspec

from apollod.engine.http.weights.body_checks import Tensors, decoded
from apollod.engine.http.weights.call_errors import BadCall
from apollod.wire.manifest import ITEM_BYTES
from apollod.wire.tensor_handles import DEVICE_HANDLE_BYTES, DeviceBytes, Handle, HostBytes

BACKEND = "tensor"
PATH_CHARACTERS_MAX = 4096
BYTES_MAX = 1 << 62  # offsets and sizes; two of them are added
HINT = (
    'send "handles": one {"file", "offset", "bytes"} a tensor, or one {"device_uuid", "memory_handle", "offset_bytes", '
    '"allocation_bytes", "bytes"}'
)


class _Host(msgspec.Struct, forbid_unknown_fields=True):
    file: str
    offset: int
    bytes: int


class _Device(msgspec.Struct, forbid_unknown_fields=True):
    device_uuid: str
    memory_handle: bytes
    """base64"""
    offset_bytes: int
    allocation_bytes: int
    bytes: int


def handles_of(given: list[dict[str, msgspec.Raw]] | None, sent: Tensors) -> list[Handle]:
    """One handle for each of these tensors."""
    if given is None:
        raise BadCall("`handles` is missing", HINT)
    if len(given) != len(sent.names):
        raise BadCall(f"`handles` has {len(given)} entries, `names` has {len(sent.names)}", "send one of each a tensor")
    return [
        _handle(one, name, dtype, shape)
        for one, name, dtype, shape in zip(given, sent.names, sent.dtypes, sent.shapes, strict=True)
    ]


def _handle(given: dict[str, msgspec.Raw], name: str, dtype: str, shape: list[int]) -> Handle:
    body = msgspec.json.encode(given)
    found: Handle
    numbers: tuple[int, ...]
    if "file" in given:
        host = decoded(body, _Host, HINT)
        if not 0 < len(host.file) <= PATH_CHARACTERS_MAX or "\0" in host.file:
            raise BadCall(f"the handle of {name} names no file", "send the absolute path of one in /dev/shm")
        found, numbers = HostBytes(host.file, host.offset, host.bytes), (host.offset, host.bytes)
    else:
        device = decoded(body, _Device, HINT)
        if len(device.memory_handle) != DEVICE_HANDLE_BYTES:
            raise BadCall(
                f"the memory_handle of {name} has {len(device.memory_handle)} bytes",
                f"send the {DEVICE_HANDLE_BYTES} bytes of a CUipcMemHandle in base64",
            )
        found = DeviceBytes(
            device.bytes, device.device_uuid, device.memory_handle, device.offset_bytes, device.allocation_bytes
        )
        numbers = device.offset_bytes, device.bytes, device.allocation_bytes
    if any(not 0 <= one <= BYTES_MAX for one in numbers):
        raise BadCall(f"the handle of {name} has a negative or an impossible number", HINT)
    if dtype in ITEM_BYTES and found.bytes != prod(shape) * ITEM_BYTES[dtype]:
        raise BadCall(
            f"the handle of {name} has {found.bytes} bytes, {dtype} of shape {shape} has "
            f"{prod(shape) * ITEM_BYTES[dtype]}",
            "send shape and dtype of what lies there, contiguous",
        )
    return found
