"""An open step of an optimizer: its parameters, its account and report, the protocol of the back ends that carry out
its updates, and the back end that runs an optimizer's own formulas.

There are two back ends. The one here runs formulas one parameter at a time: plain torch on any device, which defines
the values, and on CPU compiled passes with the same bits (kernels/passes.py). apollo_triton.py: APOLLO on a GPU;
kernels are queued, and the device is waited for once, in `report`. The account is keyed by parameter name, so that the
order of the backward pass does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from apollod.errors import ApolloError
from apollod.trainer.optim.moments import Norms
from apollod.trainer.optim.parameter_step import ParameterStep
from apollod.trainer.optim.row_gradient import RowGradient
from apollod.trainer.undo.undo_ring import UndoRing


class OptimizerError(ApolloError, ValueError):
    """A parameter, an option or a call that the optimizer cannot work with."""


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


# --- back ends ----------------------------------------------------------------------------------------------------

Groups = Sequence[Mapping[str, Any]]


class OpenStep(Protocol):
    """A step in progress."""

    @property
    def step(self) -> int:
        """The step's number."""

    def update(
        self,
        parameter: NamedParameter,
        weight: Tensor,
        gradient: Tensor | RowGradient,
        state: Mapping[str, Tensor],
        ring: UndoRing | None,
    ) -> None:
        """Update weight and state of one parameter, now or queued; neither if its gradient is zero or not finite.
        `ring` records the changes for undo. Raises OptimizerError for a second gradient in one step, and for a sparse
        one."""

    def report(self) -> StepReport:
        """The report, once all updates are complete."""


class Backend(Protocol):
    """See the head of this file."""

    def open(self, step: int, seed: int, parameters: Collection[NamedParameter], groups: Groups) -> OpenStep:
        """Open a step of the optimizer with these parameters."""


# --- the account of a step ----------------------------------------------------------------------------------------


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


# --- an optimizer's own formulas ----------------------------------------------------------------------------------


class Formulas(Protocol):
    """The update of one parameter, as an optimizer defines it: `NamedOptimizer._apply` and `_apply_rows`."""

    def _apply(self, step: ParameterStep, gradient: Tensor) -> Norms: ...

    def _apply_rows(self, step: ParameterStep, gradient: RowGradient) -> Norms: ...


def applied(formulas: Formulas, share: ParameterStep, gradient: Tensor | RowGradient) -> Norms:
    """Let the formulas write the update of one parameter. Raises OptimizerError for a sparse gradient."""
    if isinstance(gradient, RowGradient):
        return formulas._apply_rows(share, gradient)
    return formulas._apply(share, dense(share.name, gradient))


class FormulaStep(StepAccount):
    """A step by an optimizer's formulas."""

    def __init__(self, step: int, seed: int, formulas: Formulas) -> None:
        super().__init__(step, seed)
        self._formulas = formulas

    def update(
        self,
        parameter: NamedParameter,
        weight: Tensor,
        gradient: Tensor | RowGradient,
        state: Mapping[str, Tensor],
        ring: UndoRing | None,
    ) -> None:
        """See `OpenStep`."""
        name, t = parameter.name, int(state["t"]) + 1
        self.take(name)
        # with a copy of the state: before the update
        undo = ring.parameter(state) if ring is not None and ring.recording else None
        share = ParameterStep(name, parameter.group, weight, parameter.round_to, state, self.seed, self.step, t, undo)
        norms = applied(self._formulas, share, gradient)
        if self.note(name, norms):
            state["t"].fill_(t)
            if ring is not None and undo is not None:
                ring.add(undo)


class FormulaBackend:
    """Any optimizer, by its own formulas."""

    def __init__(self, formulas: Formulas) -> None:
        self._formulas = formulas

    def open(self, step: int, seed: int, parameters: Collection[NamedParameter], groups: Groups) -> FormulaStep:
        return FormulaStep(step, seed, self._formulas)
