"""Weights and optimizer state of a step, for a checkpoint that is written while later steps are done.

Everything is copied once, in the dtype of the files, into host memory that is given back afterwards. Until then
(`released`) the weights must not be written. Without room for a copy, the live weights are read in parts, which needs
next to no memory, and they must not be written until the checkpoint is complete.
"""

import mmap
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from apollod.model.memory_table import copied_bytes
from apollod.store.block_table import Array
from apollod.store.delta import chunks
from apollod.store.model_files import WeightFile
from apollod.store.pieces import Piece, Stream
from apollod.trainer.bind.live_weights import Weights, finite
from apollod.trainer.kernels import device_to_host
from apollod.wire.manifest import ITEM_BYTES

PART_BYTES = 16 << 20
COPIERS = 4
"""Most copying threads: page faults of new memory cost several times as much as the copy itself."""

_ALIGN = 256


class Snapshot:
    """The weights of a step: live until `released`, then copies. `copy` may run in another thread."""

    def __init__(self, weights: Weights, state: dict[str, Tensor]) -> None:
        self._weights = weights
        self._live = dict(weights.views)
        self._copies: dict[str, Tensor] = {}
        self._lock = threading.Lock()
        self._released = threading.Event()
        self._waited_from = 0.0
        self.state = state
        self.held_s = 0.0
        """seconds that a caller spent in `wait`"""

    # --- for writers of the weights ------------------------------------------------------------------------------

    def wait(self) -> None:
        """Wait until the weights may be written."""
        with self._lock:
            if self._released.is_set():
                return
            self._waited_from = time.perf_counter()
        self._released.wait()

    def release(self) -> None:
        """Declare that the live weights are not read any more."""
        with self._lock:
            if self._waited_from and not self._released.is_set():
                self.held_s = time.perf_counter() - self._waited_from
            self._released.set()

    # --- for the writer of the checkpoint ------------------------------------------------------------------------

    def copy(self) -> bool:
        """Copy everything and release the weights; false if there is no room: then the writer must call `release`."""
        unique = {id(view): (name, view) for name, view in self._live.items()}  # a tied tensor has two names
        sizes = {name: view.numel() * ITEM_BYTES[self._stored(name)] for name, view in unique.values()}
        state_bytes = sum(tensor.nbytes for tensor in self.state.values())
        if copied_bytes(sum(sizes.values()), state_bytes) > available_bytes():
            return False
        try:
            copies, state = self._copied(sizes)
        except (OSError, MemoryError):
            return False
        self._copies = {name: copies[unique[id(view)][0]] for name, view in self._live.items()}
        self._live, self.state = {}, state
        self.release()
        return True

    def pieces(self, files: Sequence[WeightFile]) -> Iterator[Piece]:
        """The data of all files: copies a tensor at a time, live weights 16 MiB at a time. Tensors that the engine does
        not hold come from the files it was loaded from."""
        if self._copies:
            yield from self._pieces(files)
            return
        stream = Stream(self._pieces(files))  # parts of noncontiguous tensors end anywhere, pieces at whole words
        for chunk in chunks(files):
            yield Piece(chunk.tensor.file, chunk.start, stream.take(chunk.tensor.file, chunk.start, chunk.size))

    def nonfinite(self) -> list[str]:
        """Names of tensors that hold NaN or infinity."""
        held = {**self._live, **self._copies}
        return [name for name, tensor in held.items() if tensor.is_floating_point() and not finite(tensor)]

    def drop(self) -> None:
        """Free the memory, and let all waiting writers go on."""
        self._copies, self._live, self.state = {}, {}, {}
        self.release()

    def _pieces(self, files: Sequence[WeightFile]) -> Iterator[Piece]:
        for file in files:
            for tensor in file.tensors:
                at = tensor.start
                for part in self._parts(tensor.name):
                    yield Piece(file.name, at, part)
                    at += part.nbytes

    def _parts(self, name: str) -> Iterator[Array]:
        if name in self._copies:
            yield self._copies[name].reshape(-1).view(torch.uint8).numpy()
            return
        tensor = self._live[name] if name in self._live else self._weights.source.read(name)
        yield from host_parts(tensor.detach(), getattr(torch, self._stored(name)))

    def _stored(self, name: str) -> str:
        return self._weights.source.tensors[name].dtype

    def _copied(self, sizes: dict[str, int]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Weights and state in one anonymous mapping, which is freed with the last tensor in it."""
        sources = [(self._live[name].detach(), getattr(torch, self._stored(name))) for name in sizes]
        sources += [(tensor.detach(), tensor.dtype) for tensor in self.state.values()]
        places, end = [], 0
        for source, dtype in sources:
            size = source.numel() * dtype.itemsize
            places.append((end, end + size))
            end += -(-size // _ALIGN) * _ALIGN
        mapping = mmap.mmap(-1, max(end, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with suppress(OSError):
            mapping.madvise(mmap.MADV_HUGEPAGE)  # a fault for 2 MiB instead of 4 KiB
        memory = torch.frombuffer(mapping, dtype=torch.uint8)
        copies, parts = [], []
        for (source, dtype), (start, stop) in zip(sources, places, strict=True):
            copies.append(memory[start:stop].view(dtype).view(source.shape))
            parts += _parts(copies[-1], source)
        with ThreadPoolExecutor(max(1, min(COPIERS, len(os.sched_getaffinity(0))))) as pool:
            for done in [pool.submit(part) for part in parts]:
                done.result()
        return dict(zip(sizes, copies, strict=False)), dict(zip(self.state, copies[len(sizes) :], strict=True))


def _parts(target: Tensor, source: Tensor) -> list[Callable[[], object]]:
    """The copy of one tensor (converted, if the engine holds it in a wider dtype) in parts of about PART_BYTES."""
    if source.dim() == 0 or source.nbytes <= PART_BYTES:
        return [lambda: device_to_host.copy_(target, source)]
    rows = max(1, PART_BYTES // (prod(source.shape[1:]) * source.element_size()))
    return [
        lambda a=at: device_to_host.copy_(target[a : a + rows], source[a : a + rows])  # type: ignore[misc]
        for at in range(0, source.shape[0], rows)
    ]


def host_parts(tensor: Tensor, dtype: torch.dtype) -> Iterator[Array]:
    """The elements as `dtype` in C order: uint8 [at most PART_BYTES], one after another. Views on CPU if dtype and
    layout allow."""
    size = tensor.numel() * dtype.itemsize
    if size <= PART_BYTES:
        if size:
            yield _bytes(tensor, dtype)
        return
    rows = tensor.reshape(-1) if tensor.is_contiguous() else tensor
    count = max(1, PART_BYTES // (size // rows.shape[0]))
    for first in range(0, rows.shape[0], count):
        part = rows[first : first + count]
        yield from host_parts(part[0] if count == 1 else part, dtype)


def _bytes(tensor: Tensor, dtype: torch.dtype) -> Array:
    data: Array = device_to_host.in_host_memory(tensor.detach(), dtype).reshape(-1).view(torch.uint8).numpy()
    return data


def available_bytes() -> int:
    """Memory that the kernel could provide without swapping (MemAvailable)."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 0
