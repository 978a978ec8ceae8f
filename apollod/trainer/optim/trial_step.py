"""Estimates how far a step would move a loss, to first order, without making it.

    score = sum over parameters of <dL, U>      dL  the gradient of the watched loss, summed over its items
                                                U   what the step would add to the weights

U comes from the optimizer's own formulas, with fresh moments: the effect of an example is measured by
itself, independent of earlier steps. (TracIn, Pruthi et al. 2020, "Estimating training data
influence by tracing gradient descent", with the update in place of the gradient.)

Law: neither weights nor state are written, and no gradient lives longer than in a step. dL is kept as a sketch, RANK
numbers for each row of a matrix: G P with P of +-1/sqrt(RANK). Since U P has the same P, <dL P, U P> is <dL, U> but for
an error of about |dL| |U| / sqrt(RANK) (Johnson and Lindenstrauss 1984).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from apollod.trainer.optim.open_step import Formulas, NamedParameter, StepAccount, StepReport, applied, dense
from apollod.trainer.optim.parameter_step import ParameterStep
from apollod.trainer.optim.projector import blocks, project_rows, stream_key
from apollod.trainer.optim.row_gradient import RowGradient
from apollod.trainer.undo.undo_ring import UndoRing

RANK = 64
SEED = 0


@dataclass
class Sketch:
    """The sum of gradients of one parameter: for rows longer than RANK their projections, else all of it."""

    name: str
    shape: torch.Size
    device: torch.device
    kept: Tensor = field(init=False)
    """float32 [rows, RANK or the length of a row]"""

    def __post_init__(self) -> None:
        width = self.shape[-1] if len(self.shape) > 1 else 1
        self._width = width
        rows = self.shape.numel() // width
        self.kept = torch.zeros(rows, min(width, RANK), device=self.device)

    def add(self, gradient: Tensor | RowGradient) -> None:
        """Add a whole gradient to the sum."""
        if isinstance(gradient, RowGradient):
            for some, values in gradient.blocks():
                self.kept[some] += self._projected(values)
            return
        for part in blocks(gradient.numel(), self._width):
            self.kept[self._rows(part)] += self._projected(gradient.reshape(-1)[part].view(-1, self._width))

    def product(self, rows: slice | Tensor, values: Tensor) -> float:
        """<sum, values> over some rows: values float32 [k, length of a row]."""
        return float((self._projected(values) * self.kept[rows]).sum(dtype=torch.float64))

    def blocks(self, update: Tensor, coef: Tensor | float) -> Iterator[tuple[slice, Tensor]]:
        """Rows, and `coef` times those rows of an update of the parameter's shape, float32."""
        wide = update.reshape(-1, self._width)
        for part in blocks(wide.numel(), self._width):
            rows = self._rows(part)
            scale = coef[rows] if isinstance(coef, Tensor) and coef.shape[0] > 1 else coef
            yield rows, wide[rows].float() * scale

    def whole_rows(self, part: slice, values: Tensor) -> tuple[slice, Tensor]:
        """The rows that contain the elements `part`, with zeros for all other elements."""
        first, last = part.start // self._width, -(-part.stop // self._width)
        wide = values.new_zeros((last - first) * self._width)
        at = part.start - first * self._width
        wide[at : at + values.numel()] = values
        return slice(first, last), wide.view(-1, self._width)

    def _rows(self, part: slice) -> slice:
        return slice(part.start // self._width, -(-part.stop // self._width))

    def _projected(self, rows: Tensor) -> Tensor:
        if self._width <= RANK:
            return rows.float()
        return project_rows(rows, stream_key("sketch", SEED, self.name, 0), RANK)


class Watched(StepAccount):
    """An open step that gathers the sketches of a loss's gradient, over one backward pass or several."""

    def __init__(self) -> None:
        super().__init__(0, 0)
        self.sketches: dict[str, Sketch] = {}

    def update(
        self,
        parameter: NamedParameter,
        weight: Tensor,
        gradient: Tensor | RowGradient,
        state: Mapping[str, Tensor],
        ring: UndoRing | None,
    ) -> None:
        """See `OpenStep`."""
        name = parameter.name
        if name not in self.sketches:
            self.sketches[name] = Sketch(name, weight.shape, weight.device)
        self.sketches[name].add(gradient if isinstance(gradient, RowGradient) else dense(name, gradient))


class Trial(StepAccount):
    """An open step that is never made. `score`: see the head of this file."""

    def __init__(self, formulas: Formulas, watched: Watched, lr: float) -> None:
        super().__init__(1, SEED)
        self._formulas = formulas
        self._lr = lr
        self._watched = watched.sketches
        self.score = 0.0

    def update(
        self,
        parameter: NamedParameter,
        weight: Tensor,
        gradient: Tensor | RowGradient,
        state: Mapping[str, Tensor],
        ring: UndoRing | None,
    ) -> None:
        """See `OpenStep`."""
        name = parameter.name
        self.take(name)
        if (sketch := self._watched.get(name)) is None:
            return
        shape_alone = torch.empty((), device=weight.device).expand(weight.shape)
        group = {**parameter.group, "lr": self._lr}
        share = _TrialShare(
            name, group, shape_alone, parameter.round_to, _fresh(state), self.seed, self.step, 1, sketch=sketch
        )
        applied(self._formulas, share, gradient)
        self.score += sum(share.products)

    def report(self) -> StepReport:
        """Nothing was updated."""
        return StepReport(0, 0, 0, 0.0, 0.0, [])


def _fresh(state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """State without any update; large moments are left alone, and made block by block."""
    if "m" in state:
        return state
    return {name: torch.zeros_like(one) for name, one in state.items()}


@dataclass(frozen=True)
class _TrialShare(ParameterStep):
    """One parameter's share: the write is multiplied with the watched gradient instead of being made."""

    sketch: Sketch = field(kw_only=True)
    products: list[float] = field(default_factory=list)

    def moments(self, part: slice | None = None) -> dict[str, Tensor]:
        device = self.weight.device
        shape = self.state["m"].shape if part is None else (part.stop - part.start,)
        wide = {name: torch.zeros(shape, device=device) for name in "mv"}
        if "norm" in self.state:
            wide["norm"] = torch.full_like(self.state["norm"], torch.inf)
        return wide

    def keep(self, wide: Mapping[str, Tensor], part: slice | None = None) -> None:
        pass

    def write(self, update: Tensor, coef: Tensor | float, part: slice | None = None) -> None:
        if part is None:
            pieces = self.sketch.blocks(update, coef)
        else:
            pieces = iter([self.sketch.whole_rows(part, update.float() * coef)])
        self.products.extend(self.sketch.product(rows, values) for rows, values in pieces)

    @property
    def writes_all(self) -> bool:
        return False

    def write_rows(self, rows: Tensor, update: Tensor, coef: Tensor) -> None:
        self.products.append(self.sketch.product(rows, update.float() * coef))
