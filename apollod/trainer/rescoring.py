"""Measures the loss of examples as a step would compute it, without making one. Writes nothing."""

import math
import time
from collections.abc import Callable

import torch
from transformers import PreTrainedModel

from apollod.errors import RecordRefused
from apollod.trainer.bind.giving_way import GaveWay, giving_way
from apollod.trainer.objectives.loss import loss_of
from apollod.trainer.objectives.objective import Objective
from apollod.trainer.objectives.sft import SFT
from apollod.trainer.objectives.tokens import Tokens
from apollod.wire.messages import ExamplesScored, Rescore, ScoredAgain, StepExample

TokensOf = Callable[[StepExample, Objective], Tokens]
"""tokens of an example; raises RecordRefused if they are not the learned ones"""


def rescored(
    model: PreTrainedModel, tokens_of: TokensOf, asked: Rescore, wanted_elsewhere: Callable[[], bool]
) -> ExamplesScored:
    """Answer `asked`: scores of its examples, in their order, up to an interruption by other work."""
    began, scores = time.perf_counter(), list[ScoredAgain]()
    try:
        with giving_way(model, wanted_elsewhere):
            for example in asked.examples:
                scores.append(_scored(model, tokens_of, example))
    except GaveWay:
        pass
    return ExamplesScored(asked.number, tuple(scores), time.perf_counter() - began)


@torch.no_grad()
def _scored(model: PreTrainedModel, tokens_of: TokensOf, example: StepExample) -> ScoredAgain:
    try:
        tokens = tokens_of(example, SFT)
    except RecordRefused as error:
        return ScoredAgain(example.example, None, reason=error.line())
    loss = loss_of(model, tokens).item()
    if not math.isfinite(loss):
        return ScoredAgain(example.example, None, tokens.targets, "the loss is not finite")
    return ScoredAgain(example.example, loss, tokens.targets)
