"""Copies tensors that a trainer on this machine has laid ready into a file: out of shared memory, a disk, or a GPU.
All handles are opened and checked before the first byte is read; then everything goes through two small blocks."""

import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from itertools import cycle
from pathlib import Path
from typing import Protocol

from apollod.errors import ReceiveFailed, ShareRefused
from apollod.receiver.finite_values import is_finite
from apollod.receiver.payload import Tensor, total_bytes
from apollod.receiver.shared_files import SharedFile
from apollod.receiver.weights_file import new_weights_file
from apollod.wire.receiver_messages import Received
from apollod.wire.tensor_handles import DeviceBytes, Handle, HostBytes

SOURCES_MAX = 256
"""files and allocations at once, each of which is a descriptor or a mapping"""
BLOCK_BYTES = 1 << 20


class Source(Protocol):
    """An open file or allocation."""

    def check(self, offset: int, count: int) -> None:
        """Raise ReceiveFailed unless it has these bytes."""

    def read(self, offset: int, into: memoryview) -> None:
        """Fill `into` from `offset` on. Raises ReceiveFailed."""

    def close(self) -> None:
        """Let it go."""


Place = tuple[Tensor, Source, int]
"""a tensor, what it lies in, and the offset of its first byte there"""


def take(tensors: Sequence[Tensor], handles: Sequence[Handle], directories: Sequence[str], file: Path) -> Received:
    """Write all tensors to `file`. Raises ReceiveFailed, and leaves no file then."""
    began = time.monotonic()
    with ExitStack() as stack:
        places = _opened(tensors, handles, directories, stack)
        blocks = cycle([memoryview(bytearray(BLOCK_BYTES)) for _ in range(2)])  # one is hashed while one is filled
        with new_weights_file(file, tensors) as weights:
            for tensor, source, first in places:
                for start in range(0, tensor.bytes, BLOCK_BYTES):
                    block = next(blocks)[: min(BLOCK_BYTES, tensor.bytes - start)]
                    source.read(first + start, block)
                    if not is_finite(block, tensor.dtype):
                        raise ReceiveFailed(
                            f"{tensor.name} holds NaN or infinity",
                            "look at the trainer's loss and gradients, and let no tensor change before the answer",
                        )
                    weights.write(block)
    return Received(total_bytes(tensors), time.monotonic() - began, weights.digest)


def _opened(
    tensors: Sequence[Tensor], handles: Sequence[Handle], directories: Sequence[str], stack: ExitStack
) -> list[Place]:
    """All tensors with what they lie in, which is open until the end of the stack."""
    if len(handles) != len(tensors):
        raise ReceiveFailed(f"{len(handles)} handles came for {len(tensors)} tensors", "send one for each tensor")
    sources: dict[str | bytes, Source] = {}
    places = list[Place]()
    for tensor, handle in zip(tensors, handles, strict=True):
        if handle.bytes != tensor.bytes:
            raise ReceiveFailed(
                f"the handle of {tensor.name} has {handle.bytes} bytes, its shape and dtype {tensor.bytes}",
                "send shape and dtype of what lies there, contiguous",
            )
        if isinstance(handle, DeviceBytes):
            _check_claim(tensor, handle)
        key = handle.file if isinstance(handle, HostBytes) else handle.memory_handle
        if key not in sources:
            if len(sources) >= SOURCES_MAX:
                raise ReceiveFailed(
                    f"the tensors lie in more than {SOURCES_MAX} files or allocations", "send them by several calls"
                )
            sources[key] = stack.enter_context(closing(_source(handle, directories)))
        offset = handle.offset if isinstance(handle, HostBytes) else handle.offset_bytes
        sources[key].check(offset, tensor.bytes)
        places.append((tensor, sources[key], offset))
    return places


def _check_claim(tensor: Tensor, handle: DeviceBytes) -> None:
    try:
        handle.check()
    except ShareRefused as refused:
        raise ReceiveFailed(f"{tensor.name}: {refused}", "hand over offset and size of its allocation") from refused


def _source(handle: Handle, directories: Sequence[str]) -> Source:
    if isinstance(handle, DeviceBytes):
        from apollod.receiver.device_memory import DeviceMemory  # here: torch takes seconds

        return DeviceMemory(handle)
    return SharedFile(handle.file, directories)
