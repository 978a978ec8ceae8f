"""Methods added to vLLM's worker by `--worker-extension-cls apollod.engine.worker.WorkerExtension`.

vLLM mixes this class into its worker and refuses attributes that exist already (v1/worker/worker_base.py), hence the
prefix.
"""

from collections.abc import Collection
from typing import Any

import torch
from torch import nn

from apollod.wire.manifest import MISSING, OTHER, STALE, TensorEntry, tensor_digest

MOVED = "the engine's parameter is no longer in shared memory"


class WorkerExtension:
    """Called through `collective_rpc` by method name, between two model steps."""

    model_runner: Any

    def apollod_rederive(self) -> int:
        """Refresh vLLM's derived copies of shared parameters; returns their number.

        Waits for no device: the trainer has waited for its own writes before it reported the step, and these copies
        precede the engine's next launches on the same stream.
        """
        derived = self.model_runner.get_model().apollod.derived
        for one in derived:
            one.rederive()
        return len(derived)

    def apollod_synchronize(self) -> None:
        """Wait until the device has finished all queued work."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    def apollod_compared(self) -> list[str]:
        """Names of the tensors that can differ."""
        return compared(self.model_runner.get_model())

    def apollod_differing(self, names: list[str], digests: dict[str, str]) -> dict[str, str]:
        """Tensors whose bytes do not match the trainer's digests, with the reason: see `differing`."""
        return differing(self.model_runner.get_model(), names, digests)


# --- comparison with the trainer, when log-probabilities differ: reads every weight ---------------------------------


def compared(model: nn.Module) -> list[str]:
    """Names of the tensors that can differ, derived ones first."""
    shared: Any = model.apollod
    entries = sorted(shared.manifest.tensors, key=lambda t: t.status != "rederive")
    return [entry.name for entry in entries if entry.status != "frozen"]


def differing(model: nn.Module, names: Collection[str], digests: dict[str, str]) -> dict[str, str]:
    """Tensors that differ, by name, with the reason. `digests`: digests of the trainer's tensors, by name."""
    shared: Any = model.apollod
    derived = {c.plain.data_ptr(): c for c in shared.derived}
    now = {name: p.data_ptr() for name, p in model.named_parameters(remove_duplicate=False)}
    moved = [r for r in shared.placement.regions if any(now.get(n) != shared.addresses.get(n) for n in r.names)]
    entries = {entry.name: entry for entry in shared.manifest.tensors}
    found = {}
    for entry in map(entries.__getitem__, names):
        if any(r.storage == entry.storage and r.offset <= entry.offset < r.offset + r.nbytes for r in moved):
            found[entry.name] = MOVED
        elif what := _compare(shared.placement, entry, derived, digests):
            found[entry.name] = what
    return found


def _compare(placement: Any, entry: TensorEntry, derived: dict[int, Any], digests: dict[str, str]) -> str:
    dtype: torch.dtype = getattr(torch, entry.dtype)
    view: torch.Tensor = placement.view(entry.storage, dtype, entry.offset // dtype.itemsize, entry.shape, entry.stride)
    copy = derived.get(view.data_ptr())
    if copy is not None and not copy.verified():
        return STALE
    if entry.name not in digests:
        return MISSING
    data = view.contiguous().cpu().reshape(-1).view(torch.uint8).numpy()
    return "" if tensor_digest(data) == digests[entry.name] else OTHER
