"""Keeps vLLM's CPU weights plain, so that products use the shared parameter itself.

vLLM repacks weights for oneDNN after loading (model_executor/layers/utils.py, `dispatch_cpu_unquantized_gemm`) and
offers no option against it. So between `load_weights` and post-processing layers get a method that multiplies like
vLLM's plain fallback (`cpu_linear`, in 0.26 as in 0.32). The convolution of a gated delta net has to stay packed
(layers/mamba/ops/cpu/gdn_attention.py chooses its kernel by CPU and passes `is_weight_packed=True`): its plain weights
stay in shared memory and are packed again after a write.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from vllm.model_executor.layers.linear import UnquantizedLinearMethod
from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod

from apollod import products
from apollod.adapters.system.hardware import bf16_instructions
from apollod.engine.load.bits import equal_bits


def plain_linear() -> Callable[..., torch.Tensor]:
    """torch's product of hidden [..., in] with a weight [out, in], or one of float32 tiles if the processor has no bf16
    instructions: vLLM calls a layer's `cpu_linear`, whatever it is."""
    return functional.linear if bf16_instructions() else products.linear


def packed_linear(module: Any) -> bool:
    """True if this layer multiplies with a packed copy of its weight."""
    return getattr(module, "cpu_linear", functional.linear) not in (functional.linear, products.linear)


class _Plain:
    def process_weights_after_loading(self, layer: Any) -> None:
        """Multiply with the parameter itself."""
        layer.cpu_linear = plain_linear()


class PlainLinear(_Plain, UnquantizedLinearMethod):
    """Prevents vLLM from replacing the weight by a packed one."""


class PlainEmbedding(_Plain, UnquantizedEmbeddingMethod):
    """Prevents vLLM from packing a copy of the embedding for the logits (`remove_weight=False`), which would go
    stale."""


@dataclass(frozen=True)
class PackedConvolution:
    """A causal convolution whose packed `module.weight` is derived from `plain` [channels, width] in shared memory."""

    module: Any
    plain: torch.Tensor

    def rederive(self) -> None:
        """Pack again, in place: kernels hold the address of the packed weight."""
        self.module.weight.data.copy_(self._packed())
        self.module._cpu_unpacked_conv_weight.copy_(self.plain)  # read by the fallback for speculative decoding

    def verified(self) -> bool:
        """True if the packed weight equals, bit for bit, the packed `plain`."""
        return equal_bits(self.module.weight.data, self._packed()) and equal_bits(
            self.module._cpu_unpacked_conv_weight, self.plain
        )

    def _packed(self) -> torch.Tensor:
        from vllm import _custom_ops

        packed: torch.Tensor = _custom_ops.causal_conv1d_weight_pack(self.plain.clone())
        return packed


def accept_one_token() -> None:
    """Let vLLM's convolution for bf16 instructions take a prompt of one token, at which vLLM 0.32 ends ("expect x to be
    transposed", layers/mamba/ops/cpu/gdn_attention.py): torch calls a row of a wider tensor contiguous as it is, and
    the kernel wants the strides of one that is as narrow."""
    from vllm import _custom_ops

    if getattr(_custom_ops.causal_conv1d_fwd_cpu, "__wrapped__", None) is None:
        _custom_ops.causal_conv1d_fwd_cpu = _of_any_length(_custom_ops.causal_conv1d_fwd_cpu)


def _of_any_length(convolution: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @wraps(convolution)
    def of_any_length(*, x: torch.Tensor, **others: Any) -> torch.Tensor:
        """`x`: [channels, tokens]."""
        return convolution(x=x.as_strided(x.shape, (1, x.shape[0])) if x.shape[1] == 1 else x, **others)

    return of_any_length


def keep_plain(model: nn.Module) -> None:
    """Set plain methods for every linear layer and embedding of the model."""
    module: Any
    for module in model.modules():
        method = getattr(module, "quant_method", None)
        if type(method) is UnquantizedLinearMethod and module.weight.ndim == 2:  # convolutions have this method, too
            module.quant_method = PlainLinear()
        elif type(method) is UnquantizedEmbeddingMethod:
            module.quant_method = PlainEmbedding()


def packed_convolution(module: nn.Module, flat: torch.Tensor) -> PackedConvolution | None:
    """The convolution if vLLM packed this module's weight from exactly `flat` [elements]; else None."""
    unpacked = getattr(module, "_cpu_unpacked_conv_weight", None)
    if unpacked is None or unpacked.numel() != flat.numel():
        return None
    convolution = PackedConvolution(module, flat.view(unpacked.shape))
    return convolution if convolution.verified() else None
