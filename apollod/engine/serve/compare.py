"""Which tensors engine and trainer see differently, asked when their log-probabilities differ. Reads every weight."""

from typing import Any

import torch
from torch import nn

from apollod.wire.manifest import TensorEntry, tensor_digest

STALE = "the engine computes with an old copy"
MOVED = "the engine's parameter is no longer in shared memory"
OTHER = "the trainer holds other values"
MISSING = "the trainer does not hold it"


def differing(model: nn.Module, digests: dict[str, str]) -> dict[str, str]:
    """Name -> what is wrong with it, tensors that are derived first. `digests`: of the trainer's tensors, by name."""
    shared: Any = model.apollod
    stale = {c.plain.data_ptr() for c in shared.derived if not c.verified()}
    now = {name: p.data_ptr() for name, p in model.named_parameters(remove_duplicate=False)}
    moved = [r for r in shared.placement.regions if any(now.get(n) != shared.addresses.get(n) for n in r.names)]
    found = {}
    for entry in sorted(shared.manifest.tensors, key=lambda t: t.status != "rederive"):
        if entry.status == "frozen":
            continue
        if any(r.storage == entry.storage and r.offset <= entry.offset < r.offset + r.nbytes for r in moved):
            found[entry.name] = MOVED
        elif what := _compare(shared.placement, entry, stale, digests):
            found[entry.name] = what
    return found


def _compare(placement: Any, entry: TensorEntry, stale: set[int], digests: dict[str, str]) -> str:
    dtype: torch.dtype = getattr(torch, entry.dtype)
    view: torch.Tensor = placement.view(entry.storage, dtype, entry.offset // dtype.itemsize, entry.shape, entry.stride)
    if view.data_ptr() in stale:
        return STALE
    if entry.name not in digests:
        return MISSING
    data = view.contiguous().cpu().reshape(-1).view(torch.uint8).numpy()
    return "" if tensor_digest(data) == digests[entry.name] else OTHER
