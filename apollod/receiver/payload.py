"""Checks what a sender announces, and cuts it into broadcasts as the sender does. Pure, without torch."""

from collections.abc import Iterator, Sequence
from math import prod
from typing import NamedTuple

from apollod.errors import ReceiveFailed
from apollod.wire.manifest import ITEM_BYTES
from apollod.wire.receiver_messages import Announced, Layout

TENSORS_MAX = 65536
NAME_MAX = 512  # characters
RANK_MAX = 8
BYTES_MAX = (1 << 63) - 1  # of all tensors together: what a file can have
DTYPES = ("float32", "bfloat16", "float16")
RESERVED = "__metadata__"
"""a key of a safetensors header that names no tensor"""
UNWRITTEN = 0xFF
"""each byte of a buffer before a broadcast: bytes that no sender overwrites are NaN in all three dtypes"""
SHOWN = 80  # characters of a name that is refused


class Tensor(NamedTuple):
    """A tensor to receive. `dtype`: its torch name."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def item_bytes(self) -> int:
        """Bytes of one element."""
        return ITEM_BYTES[self.dtype]

    @property
    def bytes(self) -> int:
        """Bytes of all elements."""
        return prod(self.shape) * self.item_bytes


def total_bytes(tensors: Sequence[Tensor]) -> int:
    """Bytes of all tensors together."""
    return sum(one.bytes for one in tensors)


def checked(announced: Sequence[Announced]) -> list[Tensor]:
    """The tensors to receive. Raises ReceiveFailed for the first one that cannot be."""
    if not 0 < len(announced) <= TENSORS_MAX:
        raise ReceiveFailed(
            f"{len(announced)} tensors are announced", f"announce 1 to {TENSORS_MAX} at a time, the rest by more calls"
        )
    tensors, seen, total = list[Tensor](), set[str](), 0
    for one in announced:
        if not 0 < len(one.name) <= NAME_MAX or one.name == RESERVED:
            raise ReceiveFailed(
                f"a tensor is named {one.name[:SHOWN]!r}, which has {len(one.name)} characters",
                f"give each the name that it has in the checkpoint, of 1 to {NAME_MAX} characters",
            )
        if one.name in seen:
            raise ReceiveFailed(f"{one.name} is announced twice", "announce and broadcast it once")
        tensors.append(_checked(one))
        seen.add(one.name)
        total += tensors[-1].bytes
    if total > BYTES_MAX:
        raise ReceiveFailed(f"{total} bytes are announced", "look at the shapes that the sender announces")
    return tensors


def _checked(one: Announced) -> Tensor:
    dtype = one.dtype.removeprefix("torch.")
    if dtype not in DTYPES:
        raise ReceiveFailed(
            f"{one.name} is announced as {one.dtype[:SHOWN]!r}", f"send it as one of {', '.join(DTYPES)}"
        )
    if len(one.shape) > RANK_MAX:
        raise ReceiveFailed(
            f"{one.name} is announced with {len(one.shape)} dimensions", f"send at most {RANK_MAX} dimensions"
        )
    # an empty tensor may have any other dimension, which no product bounds
    if any(not 0 <= size <= BYTES_MAX for size in one.shape) or prod(one.shape) > BYTES_MAX:
        raise ReceiveFailed(
            f"{one.name} is announced with the shape {_shown(one.shape)}", "announce the shape that it is sent with"
        )
    return Tensor(one.name, dtype, one.shape)


def _shown(shape: tuple[int, ...]) -> str:
    return str(list(shape))[:SHOWN]


def broadcasts(tensors: Sequence[Tensor], layout: Layout, packed_bytes: int) -> list[list[Tensor]]:
    """The tensors of each broadcast, in their order. Raises ReceiveFailed for packed buffers without a size."""
    if layout == "each":
        return [[one] for one in tensors]
    if layout == "bucket":
        return [list(tensors)]
    if packed_bytes <= 0:
        raise ReceiveFailed(
            f"packed buffers of {packed_bytes} bytes are announced", "give the packed_buffer_size_bytes of the sender"
        )
    return list(_packed(tensors, packed_bytes))


def _packed(tensors: Sequence[Tensor], packed_bytes: int) -> Iterator[list[Tensor]]:
    """A buffer ends with the tensor that makes it larger than `packed_bytes` (vLLM 0.32,
    distributed/weight_transfer/packed_tensor.py, `pack_tensors`)."""
    buffer, size = list[Tensor](), 0
    for one in tensors:
        buffer.append(one)
        size += one.bytes
        if size > packed_bytes:
            yield buffer
            buffer, size = [], 0
    if buffer:
        yield buffer
