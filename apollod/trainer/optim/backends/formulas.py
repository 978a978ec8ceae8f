"""The back end that runs an optimizer's own formulas, one parameter at a time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from torch import Tensor

from apollod.trainer.optim.backends.backend import Groups
from apollod.trainer.optim.moments import Norms
from apollod.trainer.optim.parameter_step import ParameterStep
from apollod.trainer.optim.row_gradient import RowGradient
from apollod.trainer.optim.step_account import NamedParameter, StepAccount, dense
from apollod.trainer.undo.undo_ring import UndoRing


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
        undo = (
            ring.parameter(state) if ring is not None and ring.recording else None
        )  # with a copy of the state: before the update
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
