"""Ranks examples by how far a step with each would move the probes that fell, to first order, without making one.

    score = sum over parameters of <dL, U>      dL  the gradient of the watched loss, summed over its items
                                                U   what the step would add to the weights

U comes from the optimizer's own formulas, with fresh moments: the effect of an example is measured by
itself, independent of earlier steps. (TracIn, Pruthi et al. 2020, "Estimating training data
influence by tracing gradient descent", with the update in place of the gradient.)

Law: neither weights nor state are written, and no gradient lives longer than in a step. dL is kept as a sketch, RANK
numbers for each row of a matrix: G P with P of +-1/sqrt(RANK). Since U P has the same P, <dL P, U P> is <dL, U> but for
an error of about |dL| |U| / sqrt(RANK) (Johnson and Lindenstrauss 1984). Needs the memory of a step, and sketches of
about the size of APOLLO's state.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from apollod.errors import RecordRefused
from apollod.trainer.bind.attach import Attached
from apollod.trainer.objectives.loss import loss_of
from apollod.trainer.objectives.table import objective_named
from apollod.trainer.objectives.tokens import Tokens
from apollod.trainer.optim.named_optimizer import NamedOptimizer
from apollod.trainer.optim.open_step import (
    Formulas,
    NamedParameter,
    ParameterStep,
    StepAccount,
    StepReport,
    applied,
    dense,
)
from apollod.trainer.optim.projector import blocks, project_rows, stream_key
from apollod.trainer.optim.row_gradient import RowGradient
from apollod.trainer.scoring import TokensOf
from apollod.trainer.undo.undo_ring import UndoRing
from apollod.wire.messages import ExamplesRanked, Rank, Suspect, WatchedItem

RANK = 64
SEED = 0
DOUBT_MIN = 1e-5
"""value of 1 - p below which rounding dominates"""


def ranked(
    attached: Attached,
    optimizer: NamedOptimizer,
    tokens_of: TokensOf,
    asked: Rank,
    loss_min: float = 0.0,
    at_work: Callable[[], None] = lambda: None,
) -> ExamplesRanked:
    """Answer `asked`. `at_work` is called after each backward pass. `optimizer` has its hooks attached; `loss_min`: see
    `run_step`."""
    began, watched = time.perf_counter(), Watched()
    for item in asked.items:
        with optimizer.trying(watched):
            (item.weight * watched_loss(attached, optimizer, item)).backward()  # type: ignore[no-untyped-call]
        at_work()
    scores, unscored = dict[str, float](), dict[str, str]()
    for suspect in asked.suspects:
        name = suspect.example.example
        try:
            scores[name] = _score(attached, optimizer, watched, tokens_of, suspect, loss_min)
        except RecordRefused as error:
            unscored[name] = error.line()
        at_work()
    return ExamplesRanked(asked.incident, asked.number, scores, unscored, time.perf_counter() - began)


def watched_loss(attached: Attached, optimizer: NamedOptimizer, item: WatchedItem) -> torch.Tensor:
    """The badness of an item, float32 [], with a graph: its loss; for a rate -log(p / (1 - p)), p being the probability
    of its tokens (geometric mean), or another value with the same gradient.

    Answers of good weights have p close to 1: their p hardly moves at first, whatever happens to it later, and the few
    uncertain ones would outweigh all others.
    """
    learned = [place >= item.start for place in range(len(item.ids))]
    loss = loss_of(attached.model, Tokens(list(item.ids), learned), optimizer)
    if not item.rate:
        return loss
    return loss / max(-math.expm1(-loss.item()), DOUBT_MIN)  # d log odds = d log p / (1 - p)


def _score(
    attached: Attached,
    optimizer: NamedOptimizer,
    watched: Watched,
    tokens_of: TokensOf,
    suspect: Suspect,
    loss_min: float,
) -> float:
    """The first-order increase of the watched loss by one step with this example."""
    objective = objective_named(suspect.objective)
    loss = loss_of(attached.model, tokens_of(suspect.example, objective), optimizer, objective)
    found = loss.item()
    if not math.isfinite(found):
        raise RecordRefused(f"example {suspect.example.example} has no finite loss", "leave it out")
    trial = Trial(optimizer, watched, suspect.lr)
    with optimizer.trying(trial):
        if not objective.token_mean or found >= loss_min:  # else the model knows it, and a step writes nothing
            loss.backward()  # type: ignore[no-untyped-call]
    return trial.score


# --- the gradient of the watched loss -------------------------------------------------------------------------------


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
        name = parameter.name
        if name not in self.sketches:
            self.sketches[name] = Sketch(name, weight.shape, weight.device)
        self.sketches[name].add(gradient if isinstance(gradient, RowGradient) else dense(name, gradient))


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


# --- a step that is not made --------------------------------------------------------------------------------------


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
