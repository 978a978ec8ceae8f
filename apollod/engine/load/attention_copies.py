"""Refreshes an attention backend's own copies of parameters, which it makes after loading and computes with.

FlashInfer and b12x want attention sinks in float32 (v1/attention/backends/flashinfer.py and b12x.py of vLLM 0.32,
`process_weights_after_loading`): `impl._sinks_source` is the parameter, `impl.sinks` the copy. The parameter keeps its
address, which therefore reveals nothing; after a write the copy is made again, in place, since CUDA graphs hold its
address. An unknown copy makes its parameter `frozen`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from apollod.engine.load.bits import equal_bits

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
