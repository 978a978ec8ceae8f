"""Builds the manifest: every checkpoint tensor, its location, and whether a write there changes the engine's
computation.

Runs after vLLM's post-processing, against the final model. A tensor is shared only if its view equals the file bit for
bit *and* the parameter that vLLM multiplies with is still that memory, or vLLM's derived copy can be derived from it
again. Anything else is `frozen`, with a reason.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding

from apollod.engine.load import cpu_layers
from apollod.engine.load.bits import checkpoint_tensors, equal_bits, exact_upcast
from apollod.engine.load.layout import NotOneView, contiguous_stride, merge
from apollod.engine.load.recorder import Copy, Recorder
from apollod.engine.load.shared_parameters import Placement
from apollod.wire.manifest import Manifest, Status, TensorEntry

ELEMENTS_MAX = 1 << 20
"""Largest possible copy: backends copy small parameters, one value per head; larger tensors are caches, workspaces."""


@dataclass(frozen=True)
class WidenedSinks:
    """`impl.sinks` [heads] in a wider dtype, derived from `plain` in shared memory."""

    impl: Any
    plain: torch.Tensor

    def rederive(self) -> None:
        """Copy again, in place."""
        self.impl.sinks.copy_(self.plain)

    def verified(self) -> bool:
        """True if the copy equals, bit for bit, the plain values in its dtype."""
        return equal_bits(self.impl.sinks, self.plain.to(self.impl.sinks.dtype))


def widened_sinks(model: nn.Module) -> Iterator[WidenedSinks]:
    """The widened sinks of all attention layers that have a copy."""
    for module in model.modules():
        impl = getattr(module, "impl", None)
        plain, sinks = getattr(impl, "_sinks_source", None), getattr(impl, "sinks", None)
        if isinstance(plain, torch.Tensor) and isinstance(sinks, torch.Tensor) and sinks.data_ptr() != plain.data_ptr():
            yield WidenedSinks(impl, plain.detach())


def unknown_copies(model: nn.Module) -> Iterator[tuple[int, str]]:
    """(address of a parameter, class of a backend) for every tensor of an attention backend that holds the values of a
    parameter of the layer around it, in other memory, and is not one of `widened_sinks`."""
    known = {id(copy.impl.sinks) for copy in widened_sinks(model)}
    for name, module in model.named_modules():
        impl = getattr(module, "impl", None)
        parameters = list(model.get_submodule(name.rpartition(".")[0]).parameters())
        for value in vars(impl).values() if hasattr(impl, "__dict__") else ():
            if isinstance(value, torch.Tensor) and id(value) not in known and 0 < value.numel() <= ELEMENTS_MAX:
                for parameter in parameters:
                    if _is_copy(value, parameter.detach()):
                        yield parameter.data_ptr(), type(impl).__name__


def _is_copy(value: torch.Tensor, parameter: torch.Tensor) -> bool:
    """True for equal values in several elements: a single one may be equal by chance, such as a scale of 1."""
    alike = value.is_floating_point() and value.shape == parameter.shape and value.numel() > 1
    return alike and value.data_ptr() != parameter.data_ptr() and bool((value == parameter.to(value)).all())


Derived = cpu_layers.PackedConvolution | WidenedSinks


@dataclass(frozen=True)
class _Home:
    """The present location of a region: `region` is where its parameter lives now (another one after re-tying)."""

    region: int
    status: Status
    reason: str = ""


class Verifier:
    """Builds the manifest of one loaded model. `derived`: copies to derive again after a write."""

    def __init__(self, model: nn.Module, placement: Placement, recorder: Recorder) -> None:
        self.derived: list[Derived] = []
        self._widened = list(widened_sinks(model))
        self._copied = dict(unknown_copies(model))
        self._model = model
        self._placement = placement
        self._recorder = recorder
        self._final = dict(model.named_parameters(remove_duplicate=False))
        self._homes = [self._home(number) for number in range(len(placement.regions))]

    def manifest(self, model_dir: Path) -> Manifest:
        """One entry for each tensor of the checkpoint in `model_dir`, in the order of its files."""
        entries = tuple(self._entry(name, stored) for name, stored in checkpoint_tensors(model_dir))
        storages = self._placement.storages
        manifest = Manifest(
            model_dir=str(model_dir),
            bridge=self._placement.bridge,
            storages=storages,
            tensors=entries,
            tied=dict(self._tied(entries)),
        )
        manifest.check()
        return manifest

    def _entry(self, name: str, stored: torch.Tensor) -> TensorEntry:
        shape = tuple(stored.shape)
        copies = self._recorder.copies.get(name, [])
        reason = self._recorder.refused_sources.get(name) or self._unshareable(copies)
        if reason:
            return _frozen(name, stored, reason)
        home, dtype = self._homes[copies[0].region], copies[0].dtype
        try:
            offset, stride = merge((copy.piece for copy in copies), shape)
        except NotOneView as error:
            return _frozen(name, stored, str(error))
        old, new = self._placement.regions[copies[0].region], self._placement.regions[home.region]
        start = offset * dtype.itemsize - old.offset + new.offset
        view = self._placement.view(new.storage, dtype, start // dtype.itemsize, shape, stride)
        status, reason = self._compare(view, stored, home)
        if status == "frozen":
            return _frozen(name, stored, reason)
        return TensorEntry(
            name, new.storage, start, shape, stride, _dtype_name(dtype), _dtype_name(stored.dtype), status, reason
        )

    def _unshareable(self, copies: list[Copy]) -> str:
        """The reason why these copies cannot be one view of a shared parameter; empty if they can."""
        if not copies:
            return "the engine does not load it into a parameter"
        if len({(copy.region, copy.dtype) for copy in copies}) > 1:
            return "the engine keeps it in several parameters"
        number = copies[0].region
        for place in (number, self._homes[number].region):
            if place in self._recorder.refused_regions:
                return f"its parameter {self._recorder.refused_regions[place]}"
            if self._homes[place].status == "frozen":
                return self._homes[place].reason
        return ""

    def _compare(self, view: torch.Tensor, stored: torch.Tensor, home: _Home) -> tuple[Status, str]:
        """Status from comparing the bits in memory and in the file."""
        expected = stored.to(device=view.device, dtype=view.dtype)
        if not equal_bits(view, expected):
            return "frozen", "after loading, memory differs from the file"
        if view.dtype == stored.dtype:
            return home.status, home.reason
        if exact_upcast(stored.dtype, view.dtype):
            return ("cast", "") if home.status == "live" else ("frozen", "it is both widened and derived")
        return "frozen", f"the engine holds {_dtype_name(stored.dtype)} as {_dtype_name(view.dtype)}"

    def _home(self, number: int) -> _Home:
        """The location and status of one region after vLLM's post-processing."""
        region = self._placement.regions[number]
        home = _Home(number, "live")
        for name in region.names:
            if name not in self._final:
                return _Home(number, "frozen", "the engine no longer has its parameter")
            module, address = self._module(name), self._final[name].data_ptr()
            if cpu_layers.packed_linear(module):
                return _Home(number, "frozen", "the engine multiplies with a packed copy")
            if address != self._placement.addresses[name]:
                home = self._moved(number, name, address)
                if home.status == "frozen":
                    break
            elif home.status == "live":
                home = self._copied_elsewhere(number, address)
        return home

    def _copied_elsewhere(self, number: int, address: int) -> _Home:
        """Status of a parameter at its original address: an attention backend may compute with a copy of it."""
        if address in self._copied:
            return _Home(number, "frozen", f"{self._copied[address]} computes with a copy of it")
        copies = [copy for copy in self._widened if copy.plain.data_ptr() == address]
        if not all(copy.verified() for copy in copies):
            return _Home(number, "frozen", "the engine computes with other values")
        self.derived += copies
        reason = "the engine computes with a wider copy, made again after a write"
        return _Home(number, "rederive", reason) if copies else _Home(number, "live")

    def _moved(self, number: int, name: str, address: int) -> _Home:
        """Status of a parameter that has left its original address: re-tied to another one, packed, or lost."""
        for other, region in enumerate(self._placement.regions):
            if (
                other != number
                and region.address == address
                and region.nbytes == self._placement.regions[number].nbytes
            ):
                # vLLM 0.32 loads an lm_head that equals the embedding, then ties it (model_loader/weight_tying.py).
                return _Home(other, "live")
        convolution = cpu_layers.packed_convolution(self._module(name), self._flat(number, self._final[name].dtype))
        if convolution is None or len(self._placement.regions[number].names) > 1:
            return _Home(number, "frozen", "the engine moved its parameter after loading")
        self.derived.append(convolution)
        return _Home(number, "rederive", "the engine multiplies with a packed copy, refreshed after a write")

    def _flat(self, number: int, dtype: torch.dtype) -> torch.Tensor:
        """All of a region as one row."""
        region = self._placement.regions[number]
        size = dtype.itemsize
        return self._placement.view(region.storage, dtype, region.offset // size, (region.nbytes // size,), (1,))

    def _module(self, name: str) -> nn.Module:
        return self._model.get_submodule(name.rpartition(".")[0])

    def _tied(self, entries: tuple[TensorEntry, ...]) -> Iterator[tuple[str, str]]:
        """(alias, checkpoint name) for embeddings and heads that are one tensor in the engine.

        From the engine's own aliases, not from the model's config: vLLM 0.32 unties tensors that the checkpoint unties.
        An alias that the checkpoint stores as well has its own entry, with the same view.
        """
        stored: dict[tuple[int, int], list[str]] = {}
        for entry in entries:
            if entry.status != "frozen":
                stored.setdefault((entry.storage, entry.offset), []).append(entry.name)
        embeddings = [
            (name, parameter.data_ptr())
            for name, parameter in self._final.items()
            if isinstance(self._module(name), VocabParallelEmbedding)
        ]
        for region in self._placement.regions:
            names = stored.get((region.storage, region.offset), [])
            base = next((name for name in names if _tail(name) == _tail(region.names[0])), "".join(names[:1]))
            for name, address in embeddings:
                if base and address == region.address and _tail(name) != _tail(base):
                    yield self._checkpoint_name(name), base

    def _checkpoint_name(self, name: str) -> str:
        """A parameter's name in the checkpoint: vLLM's prefix mapping (models/utils.py, WeightsMapper), inverted."""
        mapper = getattr(self._model, "hf_to_vllm_mapper", None)
        prefixes: Mapping[str, str | None] = getattr(mapper, "orig_to_new_prefix", {})
        for old, new in prefixes.items():
            if new and name.startswith(new):
                return old + name.removeprefix(new)
        return name


def _frozen(name: str, stored: torch.Tensor, reason: str) -> TensorEntry:
    dtype, shape = _dtype_name(stored.dtype), tuple(stored.shape)
    return TensorEntry(name, 0, 0, shape, contiguous_stride(shape), dtype, dtype, "frozen", reason)


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _tail(name: str) -> list[str]:
    """Last two parts of a dotted name: the same in all naming schemes for one tensor."""
    return name.split(".")[-2:]
