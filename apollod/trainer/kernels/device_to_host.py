"""Copies device memory into ordinary host memory, through two pinned buffers: while one part is transferred, the part
before is copied to its destination. Pinned memory stays bounded. On CPU a plain copy."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

BUFFER_BYTES = 8 << 20
"""size of each of a thread's two buffers for a device"""


class _Lanes(threading.local):
    def __init__(self) -> None:
        self.by_device: dict[torch.device, Lane] = {}


_lanes = _Lanes()


def to_host(source: Tensor, dtype: torch.dtype | None = None, after: Any = None) -> Tensor:
    """A contiguous copy of `source` in host memory, of its shape, as `dtype` if given. `after`: see `copy_`."""
    made = torch.empty(source.shape, dtype=dtype or source.dtype)
    copy_(made, source, after)
    return made


def in_host_memory(source: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """`source` itself if it is in host memory, contiguous and of this dtype; else a copy."""
    if source.is_cuda:
        return to_host(source, dtype)
    return source.to(dtype or source.dtype).contiguous()


def copy_(target: Tensor, source: Tensor, after: Any = None) -> None:
    """Copy `source` into `target` (host memory), converted to its dtype on the way. Waits for completion.

    after  CUDA event at which `source` is ready; without it, waits for all work queued on the current stream
    """
    if not source.is_cuda:
        target.copy_(source)
        return
    lanes = _lanes.by_device
    if source.device not in lanes:
        lanes[source.device] = Lane(source.device)
    lanes[source.device].copy_(target, source, after)


class Lane:
    """Two buffers, and on CUDA a stream. For one thread."""

    def __init__(self, device: torch.device, buffer_bytes: int = BUFFER_BYTES) -> None:
        cuda = device.type == "cuda"
        self._buffers = [torch.empty(buffer_bytes, dtype=torch.uint8, pin_memory=cuda) for _ in range(2)]
        self._stream: Any = torch.cuda.Stream(device) if cuda else None  # type: ignore[no-untyped-call]
        self._device = device

    def copy_(self, target: Tensor, source: Tensor, after: Any = None) -> None:
        if self._stream is not None:
            if after is None:
                self._stream.wait_stream(torch.cuda.current_stream(self._device))
            else:
                self._stream.wait_event(after)
        coming: deque[tuple[Tensor, Tensor, Any]] = deque()
        most = self._buffers[0].nbytes // target.element_size()
        for number, (place, part) in enumerate(pieces(target, source.detach(), most)):
            if len(coming) == len(self._buffers):
                _land(*coming.popleft())
            buffer = self._buffers[number % 2][: place.nbytes].view(place.dtype).view(place.shape)
            coming.append((place, buffer, self._send(buffer, part)))
        while coming:
            _land(*coming.popleft())

    def _send(self, buffer: Tensor, part: Tensor) -> Any:
        """Start the transfer; returns its completion event."""
        if self._stream is None:
            buffer.copy_(part)
            return None
        with torch.cuda.stream(self._stream):
            # converted on the device: a copy that converts is not asynchronous
            buffer.copy_(part.to(buffer.dtype).contiguous(), non_blocking=True)
            return self._stream.record_event()


def _land(place: Tensor, buffer: Tensor, sent: Any) -> None:
    if sent is not None:
        sent.synchronize()
    place.copy_(buffer)


def pieces(target: Tensor, source: Tensor, most: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Both tensors in parts of at most `most` elements, in order; views, even if not contiguous."""
    if source.numel() <= most:
        if source.numel():
            yield target, source
    elif source.is_contiguous() and target.is_contiguous():
        yield from zip(_split(target.view(-1), most), _split(source.view(-1), most), strict=True)
    else:
        rows = most * len(source) // source.numel()
        both = (
            zip(_split(target, rows), _split(source, rows), strict=True) if rows else zip(target, source, strict=True)
        )
        for place, part in both:
            yield from pieces(place, part, most)


def _split(tensor: Tensor, rows: int) -> tuple[Tensor, ...]:
    return torch.split(tensor, rows)
