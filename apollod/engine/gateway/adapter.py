"""An adapter from two sets of weights: for each linear layer the best approximation of its change by a product of two
thin matrices, in PEFT's format, and a record of what that leaves out. Pure arithmetic, in float32.

Source: Hu et al. 2021 (LoRA); Halko, Martinsson and Tropp 2011, algorithm 4.4 (randomized range finder with power
iterations); names and shapes as PEFT writes and vllm/lora/lora_model.py reads them.
"""

import re
from collections.abc import Callable, Iterable
from math import isfinite, sqrt
from typing import NamedTuple

import torch
from torch import Tensor

from apollod.errors import ModelRefused
from apollod.store.model_files import StoredTensor

LINEAR = re.compile(r"model\.(language_model\.)?layers\.\d+\.(?!.*\bexperts\b)[\w.]+\.weight")
NOT_LINEAR = ("gate", "shared_expert_gate")
"""last names of routers of a mixture, which engines compute in their own way"""
PREFIX = "base_model.model."
OVERSAMPLED = 8
POWERS = 2
ELEMENTS = 1 << 24
"""of a tensor outside of the adapter, compared at once"""


class Adapter(NamedTuple):
    """`tensors`: by PEFT's names, A of shape (rank, in) and B of shape (out, rank) for each layer. `carried`: share of
    the change that it carries (`core.facts.publishing.Attempt`). `left_out`: names of changed tensors without one."""

    tensors: dict[str, Tensor]
    carried: float
    left_out: tuple[str, ...]

    @property
    def modules(self) -> list[str]:
        """Last names of the layers."""
        return sorted({name.rsplit(".", 3)[1] for name in self.tensors})


def is_linear(tensor: StoredTensor) -> bool:
    """True for the weight of a linear layer of a block that engines put adapters on. Embeddings, the head, norms,
    convolutions, routers and experts are none."""
    name = tensor.name.split(".")
    return len(tensor.shape) == 2 and bool(LINEAR.fullmatch(tensor.name)) and name[-2] not in NOT_LINEAR


def make(
    tensors: Iterable[StoredTensor], rank: int, now: Callable[[str], Tensor], base: Callable[[str], Tensor]
) -> Adapter:
    """The adapter of this rank that leads from `base` to `now`, tensors by name, in the dtypes of the model. A layer
    that did not change has one of zeros. Gives the same bits for the same tensors on one machine. Raises ModelRefused
    for values that are not finite."""
    found, left_out, missing, whole = dict[str, Tensor](), list[str](), 0.0, 0.0
    for tensor in tensors:
        if not is_linear(tensor):
            size = _finite(tensor, _changed(now(tensor.name), base(tensor.name)))
            whole, missing = whole + size, missing + size
            left_out += [tensor.name] if size else []
            continue
        new = now(tensor.name)
        change = new.float() - base(tensor.name).float()
        whole += _finite(tensor, _square(change))
        a, b = factors(change, rank, new.dtype)
        module = PREFIX + tensor.name.removesuffix(".weight")
        found |= {f"{module}.lora_A.weight": a, f"{module}.lora_B.weight": b}
        missing += _square(change.addmm_(b.float(), a.float(), alpha=-1.0))
    return Adapter(found, 1.0 - sqrt(missing / whole) if whole else 1.0, tuple(left_out))


def factors(change: Tensor, rank: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """A of shape (rank, in) and B of shape (out, rank), rounded to `dtype`, whose product B @ A is a best approximation
    of `change`, float32 of shape (out, in): its `rank` largest singular values, shared equally between the two."""
    rows, columns = change.shape
    a, b = torch.zeros(rank, columns), torch.zeros(rows, rank)
    if change.any():
        u, s, v = _largest(change, min(rank, rows, columns))
        b[:, : len(s)], a[: len(s)] = u * s.sqrt(), s.sqrt()[:, None] * v
    return a.to(dtype), b.to(dtype)


def _largest(change: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Left vectors (columns), values and right vectors (rows) of the largest singular values."""
    wide = count + OVERSAMPLED
    if wide >= min(change.shape):
        u, s, v = torch.linalg.svd(change, full_matrices=False)
    else:
        within = torch.randn(change.shape[1], wide, generator=torch.Generator().manual_seed(0))
        spanned = torch.linalg.qr(change @ within).Q
        for _ in range(POWERS):
            spanned = torch.linalg.qr(change @ torch.linalg.qr(change.T @ spanned).Q).Q
        u, s, v = torch.linalg.svd(spanned.T @ change, full_matrices=False)
        u = spanned @ u
    return u[:, :count], s[:count], v[:count]


def _changed(now: Tensor, base: Tensor) -> float:
    """Square of the Frobenius norm of a change."""
    pieces = zip(torch.split(now.flatten(), ELEMENTS), torch.split(base.flatten(), ELEMENTS), strict=True)
    return sum(_square(new.float() - old.float()) for new, old in pieces)


def _finite(tensor: StoredTensor, size: float) -> float:
    if not isfinite(size):
        raise ModelRefused(f"{tensor.name} has values that are not finite", "go back with `apollod ctl rollback`")
    return size


def _square(tensor: Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor, dtype=torch.float64)) ** 2
