"""The protocol of the back ends that carry out the updates of a step. There are two.

formulas.py: an optimizer's own formulas, one parameter at a time; plain torch on any device, which defines the values,
and on CPU compiled passes that give the same bits (kernels/passes.py). apollo_triton.py: APOLLO on a GPU; kernels are
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
    """A step whose updates are being made."""

    @property
    def step(self) -> int:
        """Its number."""

    def update(
        self,
        parameter: NamedParameter,
        weight: Tensor,
        gradient: Tensor | RowGradient,
        state: Mapping[str, Tensor],
        ring: UndoRing | None,
    ) -> None:
        """Update weight and state of one parameter, now or queued; or, where its gradient is zero or not finite,
        neither. `ring` keeps the way back. Raises OptimizerError for a second gradient in one step, and for one that
        is sparse."""

    def report(self) -> StepReport:
        """What was done, once all of it is."""


class Backend(Protocol):
    """See the head of this file."""

    def open(self, step: int, seed: int, parameters: Collection[NamedParameter], groups: Groups) -> OpenStep:
        """A new step of the optimizer with these parameters."""
