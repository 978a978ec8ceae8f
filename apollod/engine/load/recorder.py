"""Records the destination of each checkpoint tensor: a dispatch mode around vLLM's own `load_weights`.

The mapping is discovered, not listed: every `copy_` from a checkpoint tensor into a parameter is recorded, for any
architecture that vLLM can load. It fails closed. A checkpoint tensor that another operator reads, or a parameter that
another operator writes, is refused with the name of that operator, because its values may then live somewhere else too.
The same rule as vLLM 0.32's own recorder (distributed/weight_transfer/sharded_rdt_fake.py).
"""

from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from apollod.engine.load.layout import Piece
from apollod.engine.load.shared_parameters import Region

_aten = torch.ops.aten


@dataclass(frozen=True)
class Copy:
    """One `copy_` of (part of) a checkpoint tensor into region number `region`, held there as `dtype`."""

    region: int
    dtype: torch.dtype
    piece: Piece


@dataclass(frozen=True, order=True)
class _Source:
    """Address range of one checkpoint tensor while it is loaded."""

    start: int
    end: int
    name: str


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records copies from tagged tensors into the regions of the shared memory; the copies themselves still happen.

    After use `copies` maps checkpoint names to recorded copies, `refused_sources` and `refused_regions` (by region
    number) name what must not be shared, with the reason.
    """

    def __init__(self, regions: Sequence[Region]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.copies: dict[str, list[Copy]] = {}
        self.refused_sources: dict[str, str] = {}
        self.refused_regions: dict[int, str] = {}
        self._regions = sorted((region.address, region.address + region.nbytes, n) for n, region in enumerate(regions))
        self._sources: list[_Source] = []
        self._tensors: dict[str, torch.Tensor] = {}

    def tag(self, name: str, tensor: torch.Tensor) -> None:
        """Announce a checkpoint tensor before the loader sees it. It is kept alive, so that its address is not
        reused."""
        start = tensor.data_ptr()
        if name in self._tensors or not tensor.is_contiguous() or (tensor.numel() and self._source(start)):
            self.refused_sources[name] = "the checkpoint reader gave it twice, or not as one block"
        self._tensors[name] = tensor
        insort(self._sources, _Source(start, start + tensor.numel() * tensor.element_size(), name))

    def release(self) -> None:
        """Release the checkpoint tensors."""
        self._sources.clear()
        self._tensors.clear()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Called by torch for every operator while the mode is on. Source: torch/utils/_python_dispatch.py."""
        kwargs = kwargs or {}
        if func is _aten.copy_.default:
            self._copy(args[0], args[1])
        elif not (func in (_aten.fill_.Scalar, _aten.zero_.default) and not any(args[1:])):
            # A zero fill is how vLLM clears the padding rows of a vocabulary (vocab_parallel_embedding.py).
            self._other(func, args, kwargs)
        return func(*args, **kwargs)

    def _copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        region, found = self._region(target.data_ptr()), self._source(source.data_ptr())
        if found and region is None:
            self._refuse_source(found.name, "was copied to memory that is no parameter")
        elif region is not None and found is None:
            self._refuse_region(region, "was written with a computed tensor (aten.copy_)")
        elif region is not None and found:
            tensor = self._tensors[found.name]
            if source.dtype != tensor.dtype:
                self._refuse_source(found.name, f"was read as {source.dtype}")
                return
            source = source.expand(target.shape)
            self.copies.setdefault(found.name, []).append(
                Copy(
                    region,
                    target.dtype,
                    Piece(
                        tuple(target.shape),
                        (source.data_ptr() - tensor.data_ptr()) // tensor.element_size(),
                        source.stride(),
                        int(target.storage_offset()),
                        target.stride(),
                    ),
                )
            )

    def _other(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for writes, tensor in _tensors(func, args, kwargs):
            address = tensor.data_ptr()
            if writes and (region := self._region(address)) is not None:
                self._refuse_region(region, f"was written by {func}")
            elif not func.is_view and (source := self._source(address)):
                self._refuse_source(source.name, f"was read by {func}")

    def _refuse_source(self, name: str, reason: str) -> None:
        self.refused_sources.setdefault(name, reason)

    def _refuse_region(self, region: int, reason: str) -> None:
        self.refused_regions.setdefault(region, reason)

    def _region(self, address: int) -> int | None:
        """Number of the region that holds this address."""
        at = bisect_right(self._regions, (address, 1 << 64, 0)) - 1
        return self._regions[at][2] if at >= 0 and address < self._regions[at][1] else None

    def _source(self, address: int) -> _Source | None:
        """The checkpoint tensor that holds this address."""
        at = bisect_right(self._sources, _Source(address, 1 << 64, "")) - 1
        return self._sources[at] if at >= 0 and address < self._sources[at].end else None


def _tensors(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[bool, torch.Tensor]]:
    """(is written, tensor) for every tensor argument of an operator call, also inside lists."""
    schema = func._schema.arguments
    named = [*zip(schema, args, strict=False), *((a, kwargs[a.name]) for a in schema if a.name in kwargs)]
    for argument, value in named:
        writes = argument.alias_info is not None and argument.alias_info.is_write
        for leaf in tree_leaves(value):
            if isinstance(leaf, torch.Tensor):
                yield writes, leaf
