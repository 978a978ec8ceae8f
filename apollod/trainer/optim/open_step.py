"""An open step of an optimizer: one parameter's share of it for the formulas (moments in float32, and the rounded
write), the account and report of all, the type of the back ends that carry out updates, and the back end that runs
an optimizer's own formulas.

There are two back ends. The one here runs formulas one parameter at a time: plain torch on any device, which defines
the values, and on CPU compiled passes with the same bits (kernels/passes.py). apollo_triton.py: APOLLO on a GPU;
kernels are queued, and the device is waited for once, in `report`. The account is keyed by parameter name, so that the
order of the backward pass does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
import torch
from torch import Tensor

from apollod.errors import ApolloError
from apollod.trainer.kernels.passes import CompiledPasses, compiled_passes
from apollod.trainer.optim import projector
from apollod.trainer.optim.moments import Norms, load_moments, save_moments
from apollod.trainer.optim.projector import blocks, stream_key
from apollod.trainer.optim.rounding import kernel_options, write_rows_, write_update_
from apollod.trainer.optim.row_gradient import RowGradient
from apollod.trainer.undo.undo_ring import WRITE_BYTES, ParameterUndo, UndoRing


class OptimizerError(ApolloError, ValueError):
    """A parameter, an option or a call that the optimizer cannot work with."""


@dataclass(frozen=True)
class NamedParameter:
    """One parameter, known by its Hugging Face name, whatever memory holds it."""

    name: str
    group: dict[str, Any]
    round_to: torch.dtype


class StepReport(msgspec.Struct, frozen=True):
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


@dataclass(frozen=True)
class ParameterStep:
    """One parameter's share of a step, for an optimizer's formulas.

    number    of the step; keys the random streams
    t         updates of this parameter, this one included
    undo      records the writes, so that they can be undone
    """

    name: str
    group: Mapping[str, Any]
    weight: Tensor
    round_to: torch.dtype
    state: Mapping[str, Tensor]
    seed: int
    number: int
    t: int
    undo: ParameterUndo | None = None

    def moments(self, part: slice | None = None) -> dict[str, Tensor]:
        """State with float32 m and v: all of them, or flat the elements `part`. `keep` stores changes to them."""
        return load_moments(self.state, part)

    def keep(self, wide: Mapping[str, Tensor], part: slice | None = None) -> None:
        """Store the result of `moments`. bfloat16 moments are rounded stochastically, by streams of their own."""
        if self.state["m"].dtype == torch.float32:
            return  # they are the state itself
        keys = {name: stream_key(f"moment {name}", self.seed, self.name, self.number) for name in "mv"}
        save_moments(self.state, wide, part, keys)

    def one_call(self, gradient: Tensor) -> CompiledPasses | None:
        """The compiled passes that update this parameter from gradient to weight in one call, if it is bf16 on CPU with
        float32 moments, rounded when written; at most a working block, of whole words. Otherwise calls and torch
        operations on little memory would take most of the time. Same bits as the separate formulas, which handle all
        other cases."""
        weight, state = self.weight, self.state
        small = gradient.numel() <= projector.BLOCK_ELEMENTS and gradient.dim() and not gradient.shape[-1] % 2
        if not small or not weight.is_cpu or not weight.dtype == gradient.dtype == torch.bfloat16:
            return None
        if "master" in state or state["m"].dtype != torch.float32 or (weight.data_ptr() | gradient.data_ptr()) % 4:
            return None
        return compiled_passes()

    def write(self, update: Tensor, coef: Tensor | float, part: slice | None = None) -> None:
        """weight = round(weight (1 - lr weight_decay) + coef update); with `part`, for these elements and a flat
        update."""
        weight, master = self.weight, self.state.get("master")
        if part is not None:
            self._write(
                weight.view(-1)[part], None if master is None else master.view(-1)[part], update, coef, part.start
            )
        elif self.undo is None or not isinstance(coef, Tensor) or coef.dim() != 2:
            self._write(weight, master, update, coef, 0)
        else:
            width = weight.shape[1]
            # block by block: old and new values stay in the processor's caches; on a device, bounds its memory
            length = None if weight.is_cpu else WRITE_BYTES // weight.element_size()
            for block in blocks(weight.numel(), width, length):
                rows = slice(block.start // width, block.stop // width)
                scale = coef[rows] if coef.shape[1] == 1 else coef
                self._write(weight[rows], None if master is None else master[rows], update[rows], scale, block.start)

    def _write(self, weight: Tensor, master: Tensor | None, update: Tensor, coef: Tensor | float, first: int) -> None:
        """first: index of weight[0] in the parameter."""
        decay, key = self.decay, self.rounding_key
        if master is None:
            with self.kept(weight):
                write_update_(weight, update, coef, decay, key, self.group["rounding"], self.round_to, first)
            return
        with self.kept(weight, master):
            if self.t == 1:
                master.copy_(weight)
            write_update_(master, update, coef, decay, key, "nearest", torch.float32)
            weight.copy_(master if weight.dtype == self.round_to else master.to(self.round_to))

    @property
    def writes_all(self) -> bool:
        """True if rows without gradient have to be written, too: weights decay, or the master copy is initialised."""
        return self.decay != 1 or ("master" in self.state and self.t == 1)

    def write_rows(self, rows: Tensor, update: Tensor, coef: Tensor) -> None:
        """`write` for some rows of a bf16 matrix: int64 [k] ascending, update [k, n], coef float32 [k, 1]."""
        master = self.state.get("master")
        if master is None:
            with self._kept_rows(rows, self.weight):
                write_rows_(self.weight, rows, update, coef, self.decay, self.rounding_key, self.group["rounding"])
            return
        with self._kept_rows(rows, self.weight, master):
            wide = self.weight[rows].float() if self.t == 1 else master[rows]
            write_update_(wide, update, coef, self.decay, self.rounding_key, "nearest", torch.float32)
            master[rows] = wide
            self.weight[rows] = wide.to(self.weight.dtype)

    def kept(self, *targets: Tensor) -> AbstractContextManager[None]:
        """Context for all writes to these contiguous tensors, the weight or its master, which records them for undo."""
        return nullcontext() if self.undo is None else self.undo.writing(*targets)

    def _kept_rows(self, rows: Tensor, *targets: Tensor) -> AbstractContextManager[None]:
        return nullcontext() if self.undo is None else self.undo.writing_rows(rows, *targets)

    @property
    def decay(self) -> float:
        """The factor of the weight."""
        return 1 - float(self.group["lr"] * self.group["weight_decay"])

    @property
    def rounding_key(self) -> int:
        """Key of the write's noise."""
        return stream_key("rounding", self.seed, self.name, self.number)

    @property
    def rounding_options(self) -> tuple[float, int, int, bool]:
        """Decay, noise and rounding of the write, for compiled passes."""
        return kernel_options(self.decay, self.rounding_key, self.group["rounding"])


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


Backend = Callable[[int, int, Collection[NamedParameter], Groups], OpenStep]
"""(number of a step, seed of the run, the optimizer's parameters, its groups) -> an open step"""


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
    """The update of one parameter, as an optimizer defines it: `NamedOptimizer._apply`."""

    def _apply(self, step: ParameterStep, gradient: Tensor | RowGradient) -> Norms: ...


def applied(formulas: Formulas, share: ParameterStep, gradient: Tensor | RowGradient) -> Norms:
    """Let the formulas write the update of one parameter. Raises OptimizerError for a sparse gradient."""
    return formulas._apply(share, dense(share.name, gradient) if isinstance(gradient, Tensor) else gradient)


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
