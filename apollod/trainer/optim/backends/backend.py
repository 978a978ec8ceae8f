"""The protocol of the back ends that carry out the updates of a step. There are two.

formulas.py: an optimizer's own formulas, one parameter at a time; plain torch on any device, which defines the values,
and on CPU compiled passes with the same bits (kernels/passes.py). apollo_triton.py: APOLLO on a GPU; kernels are
queued, and the device is waited for once, in `report`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor

from apollod.trainer.optim.row_gradient import RowGradient
from apollod.trainer.optim.step_account import NamedParameter, StepReport
from apollod.trainer.undo.undo_ring import UndoRing

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
