"""The matrix product with a plain weight in shared memory."""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from apollod import products
from apollod.adapters.system.processor import bf16_instructions


def plain_linear() -> Callable[..., torch.Tensor]:
    """torch's product of hidden [..., in] with a weight [out, in], or one of float32 tiles if the processor has no bf16
    instructions: vLLM calls a layer's `cpu_linear`, whatever it is."""
    return functional.linear if bf16_instructions() else products.linear


def packed_linear(module: Any) -> bool:
    """True if this layer multiplies with a packed copy of its weight."""
    return getattr(module, "cpu_linear", functional.linear) not in (functional.linear, products.linear)
