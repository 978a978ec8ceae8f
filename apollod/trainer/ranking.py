"""Ranks examples by how far a step with each would move the probes that fell, to first order (optim/trial_step.py).
Writes nothing; needs the memory of a step, and sketches of about the size of APOLLO's state."""

import math
import time
from collections.abc import Callable

import torch

from apollod.errors import RecordRefused
from apollod.trainer.bind.attach import Attached
from apollod.trainer.objectives.loss import loss_of
from apollod.trainer.objectives.objective import Objective
from apollod.trainer.objectives.table import objective_named
from apollod.trainer.objectives.tokens import Tokens
from apollod.trainer.optim.named_optimizer import NamedOptimizer
from apollod.trainer.optim.trial_step import Trial, Watched
from apollod.wire.messages import ExamplesRanked, Rank, StepExample, Suspect, WatchedItem

TokensOf = Callable[[StepExample, Objective], Tokens]
"""tokens of an example; raises RecordRefused if they are not the learned ones"""
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
