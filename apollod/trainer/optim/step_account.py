"""The account of a step, keyed by parameter name, so that the order of the backward pass does not matter."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from apollod.trainer.optim.moments import Norms
from apollod.trainer.optim.optimizer_errors import OptimizerError


@dataclass(frozen=True)
class NamedParameter:
    """One parameter, known by its Hugging Face name, whatever memory holds it."""

    name: str
    group: dict[str, Any]
    round_to: torch.dtype


@dataclass(frozen=True)
class StepReport:
    """The report of one step. Sums run in the order of names, so they do not depend on the order of the backward
    pass."""

    updated: int
    skipped_zero: int
    skipped_nonfinite: int
    update_norm: float
    """Euclidean norm, over all updated parameters, of the update before lr (bias correction, scale and limiter
    included)."""
    grad_norm: float
    """Euclidean norm of the gradients of all updated parameters."""
    skipped: list[str]
    """Names of parameters with a zero or non-finite gradient: neither weights nor state were touched."""


def second_gradient(name: str, step: int) -> OptimizerError:
    """The error for a parameter that fires twice in a step."""
    return OptimizerError(f"{name} got a second gradient in step {step}", "run one backward pass a step")


def dense(name: str, gradient: Tensor) -> Tensor:
    """The gradient, contiguous and detached; raises OptimizerError for a sparse one."""
    if gradient.layout != torch.strided:
        raise OptimizerError(f"the gradient of {name} is sparse; only dense gradients are supported")
    return gradient.detach().contiguous()


@dataclass
class StepAccount:
    """Running account of an open step. `seed`: of the run."""

    step: int
    seed: int
    squares: dict[str, tuple[float, float]] = field(default_factory=dict)  # of update and gradient; updated parameters
    zero: list[str] = field(default_factory=list)
    nonfinite: list[str] = field(default_factory=list)
    fired: set[str] = field(default_factory=set)

    def take(self, name: str) -> None:
        """Register a parameter's gradient; raises OptimizerError for its second one."""
        if name in self.fired:
            raise second_gradient(name, self.step)
        self.fired.add(name)

    def note(self, name: str, norms: Norms) -> bool:
        """Enter the result for a gradient; false if it is zero or not finite, and nothing was written."""
        if norms.zero or norms.nonfinite:
            (self.zero if norms.zero else self.nonfinite).append(name)
            return False
        self.squares[name] = (norms.update**2, norms.grad_square)
        return True

    def report(self) -> StepReport:
        ordered = [self.squares[name] for name in sorted(self.squares)]
        update_norm, grad_norm = (math.sqrt(sum(square[i] for square in ordered)) for i in (0, 1))
        skipped = sorted(self.zero + self.nonfinite)
        return StepReport(len(ordered), len(self.zero), len(self.nonfinite), update_norm, grad_norm, skipped)
