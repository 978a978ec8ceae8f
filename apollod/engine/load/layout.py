"""Derives one strided view of the whole checkpoint tensor from the copies that vLLM's loader made. Integers only, no
torch.

A checkpoint tensor reaches a parameter in pieces: q, k and v rows of a fused projection, three row blocks of a
convolution, one slice an expert. If all pieces lie where one strided view would put them, that view *is* the tensor.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod


@dataclass(frozen=True)
class Piece:
    """One recorded copy. Offsets and strides count elements.

    Element `x` of the piece (`0 <= x < shape`) came from source element `source_offset + x . source_stride` of the
    contiguous checkpoint tensor and lies at `target_offset + x . target_stride` of the shared storage.
    """

    shape: tuple[int, ...]
    source_offset: int
    source_stride: tuple[int, ...]
    target_offset: int
    target_stride: tuple[int, ...]


class NotOneView(ValueError):
    """The pieces do not form one strided view; the message gives the reason."""


@dataclass(frozen=True)
class _Box:
    """A piece in the dimensions of its tensor; `stride` is None where the piece is one element thick."""

    start: tuple[int, ...]
    extent: tuple[int, ...]
    stride: tuple[int | None, ...]
    target_offset: int


def contiguous_stride(shape: Sequence[int]) -> tuple[int, ...]:
    """C-order strides in elements, as for a new torch tensor of this shape."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def merge(pieces: Iterable[Piece], shape: Sequence[int]) -> tuple[int, tuple[int, ...]]:
    """Offset and strides, in elements of the target, of the view that equals the whole tensor of this shape.

    Raises NotOneView if pieces are missing, overlap, or do not lie on one view.
    """
    boxes = [_box(piece, shape) for piece in dict.fromkeys(pieces)]
    _check_cover(boxes, shape)
    stride: list[int | None] = []
    for d in range(len(shape)):
        known = {box.stride[d] for box in boxes if box.stride[d] is not None}
        if len(known) > 1:
            raise NotOneView(f"its pieces have different strides in dimension {d}")
        stride.append(known.pop() if known else None)
    full = _complete(stride, boxes, shape)
    offsets = {_origin(box, full) for box in boxes}
    if len(offsets) > 1:
        raise NotOneView("its pieces do not lie on one strided view")
    offset = offsets.pop()
    if offset < 0 or min(full, default=0) < 0:
        raise NotOneView("its view would run backwards")
    return offset, full


def _box(piece: Piece, shape: Sequence[int]) -> _Box:
    """The piece as a box of the tensor's index space; a piece dimension may run over several tensor dimensions."""
    natural = contiguous_stride(shape)
    start = [piece.source_offset // step % size for step, size in zip(natural, shape, strict=True)]
    extent = [1] * len(shape)
    stride: list[int | None] = [None] * len(shape)
    for size, source, target in _coalesced(piece):
        d = next((d for d, step in enumerate(natural) if step == source and shape[d] > 1), -1)
        while size > 1:
            if d < 0 or extent[d] != 1 or (size > shape[d] and (size % shape[d] or start[d])):
                raise NotOneView("a piece was copied in an order that is no slice of the tensor")
            if shape[d] > 1:
                extent[d], stride[d] = min(size, shape[d]), target
                target *= shape[d]
                size //= extent[d]
            d -= 1
    if any(s + e > n for s, e, n in zip(start, extent, shape, strict=True)):
        raise NotOneView("a piece runs past the end of the tensor")
    return _Box(tuple(start), tuple(extent), tuple(stride), piece.target_offset)


def _coalesced(piece: Piece) -> list[tuple[int, int, int]]:
    """(size, source stride, target stride) of the piece's dimensions, without those of size 1, neighbours joined if
    they are contiguous on both sides: a tensor viewed as [heads, rows, columns] is copied like one of [heads * rows,
    columns]."""
    runs: list[tuple[int, int, int]] = []
    for size, source, target in zip(piece.shape, piece.source_stride, piece.target_stride, strict=True):
        if runs and runs[-1][1:] == (source * size, target * size):
            runs[-1] = (runs[-1][0] * size, source, target)
        elif size > 1:
            runs.append((size, source, target))
    return runs


def _check_cover(boxes: Sequence[_Box], shape: Sequence[int]) -> None:
    """Raise NotOneView unless the boxes hold every element exactly once."""
    copied, wanted = sum(prod(box.extent) for box in boxes), prod(shape)
    if copied != wanted:
        raise NotOneView(f"{copied} of its {wanted} elements were copied")
    for a, b in combinations(boxes, 2):
        if all(
            a.start[d] < b.start[d] + b.extent[d] and b.start[d] < a.start[d] + a.extent[d] for d in range(len(shape))
        ):
            raise NotOneView("some of its elements were copied twice")


def _complete(stride: list[int | None], boxes: Sequence[_Box], shape: Sequence[int]) -> tuple[int, ...]:
    """Fill in strides that no single piece shows: from the distance between two pieces, or by convention."""
    hidden = [d for d, size in enumerate(shape) if size > 1 and stride[d] is None]
    if len(hidden) > 1:
        raise NotOneView("its pieces are too thin to tell how it is laid out")
    for d in hidden:
        first, other = boxes[0], next(box for box in boxes if box.start[d] != boxes[0].start[d])
        known = tuple(step or 0 for step in stride)
        step, rest = divmod(_origin(other, known) - _origin(first, known), other.start[d] - first.start[d])
        if rest:
            raise NotOneView("its pieces do not lie on one strided view")
        stride[d] = step
    for d in reversed(range(len(shape))):
        if stride[d] is None:  # one element thick: its stride has no effect, so use torch's
            stride[d] = stride[d + 1] * shape[d + 1] if d + 1 < len(shape) else 1  # type: ignore[operator]
    return tuple(step for step in stride if step is not None)


def _origin(box: _Box, stride: Sequence[int]) -> int:
    """Target offset of the tensor's first element, seen from this box."""
    return box.target_offset - sum(s * step for s, step in zip(box.start, stride, strict=True))
