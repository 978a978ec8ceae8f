"""An engine that multiplies with a copy of one weight, on every kind of processor: `rederive` in its manifest.

vLLM packs the convolution of a gated delta net on processors with bf16 instructions only, so elsewhere nothing would
show that a derived copy is made again after a write. A worker with this extension keeps a private copy of `PLANTED`.
"""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from support.planted import PLANTED
from torch import nn

from apollod.engine.load import cpu_layers, verification
from apollod.engine.worker import WorkerExtension

_keep_plain, _widened_sinks = cpu_layers.keep_plain, verification.widened_sinks


class CopiedLinear(cpu_layers.PlainLinear):
    """Multiplies with `sinks`, made from the parameter after loading."""

    sinks: torch.Tensor

    def process_weights_after_loading(self, layer: Any) -> None:
        super().process_weights_after_loading(layer)
        self.sinks = layer.weight.data.clone()

    def apply(self, layer: Any, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        product: torch.Tensor = layer.cpu_linear(x, self.sinks, bias)
        return product


def keep_plain(model: nn.Module) -> None:
    """As the engine does, but for one layer."""
    _keep_plain(model)
    planted = [m for name, m in model.named_modules() if f"{name}.weight".endswith(PLANTED.removeprefix("model."))]
    for module in planted:
        module.quant_method = CopiedLinear()


def widened_sinks(model: nn.Module) -> Iterator[verification.WidenedSinks]:
    """Those of attention, and the planted one, which is derived in the same way."""
    yield from _widened_sinks(model)
    for module in model.modules():
        method = getattr(module, "quant_method", None)
        if isinstance(method, CopiedLinear):
            plain: Any = module.weight
            yield verification.WidenedSinks(SimpleNamespace(sinks=method.sinks), plain.detach())


class Extension(WorkerExtension):
    """Imported by the worker before it loads the model."""


cpu_layers.keep_plain = keep_plain
verification.widened_sinks = widened_sinks
