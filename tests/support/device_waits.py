"""What a device would be asked for, seen on CPU: which operations would make the host wait for it, and how large what
they make is."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_WAITS = ("_local_scalar_dense", "nonzero", "_unique2", "unique_dim", "masked_select", "is_nonzero", "equal")
"""Operations whose result, or its size, the host has to know."""

_NO_WORK = ("detach", "empty", "new_empty", "set_")


class DeviceWaits(TorchDispatchMode):
    """waits     names of operations that would have waited
    launches  operations that do work, views and allocations not counted
    largest   elements of the largest new tensor of each dtype"""

    def __init__(self, known: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.waits: list[str] = []
        self.launches = 0
        self.largest: dict[torch.dtype, int] = {}
        self._known = {tensor.untyped_storage().data_ptr() for tensor in known}

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__
        by_mask = name in ("index", "index_put", "index_put_") and any(
            isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8) for index in tree_leaves(args[1])
        )
        if name in _WAITS or by_mask:
            self.waits.append(name)
        out = func(*args, **(kwargs or {}))
        if not func.is_view and name not in _NO_WORK:
            self.launches += 1
        for made in tree_leaves(out):
            if isinstance(made, Tensor) and made.untyped_storage().data_ptr() not in self._known:
                self.largest[made.dtype] = max(made.numel(), self.largest.get(made.dtype, 0))
        return out
