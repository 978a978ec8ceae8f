"""KTO: learns from single answers that were found good or bad, with no other answer to compare with.

    r = sum_t (logp_t - ref_t)
    L = w (1 - s(beta (r - z0)))        for a good answer
    L = w (1 - s(beta (z0 - r)))        for a bad one        s(x) = 1 / (1 + e^-x)

z0, the point from which gains and losses count, is the divergence from the reference on other questions, never below 0.
It is estimated from pairs of a question with another one's answer; a step over one example has no other, and its own
would cancel what it is to measure. So z0 is a mean over a window of other answers, taken when the answer is queued, and
part of the record, so that a replay has it, too.

Source: Ethayarajh et al., "KTO: Model Alignment as Prospect Theoretic Optimization" (arXiv:2402.01306), which keeps
the number of good answers times their weight between 1 and 4/3 of that of bad ones.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

from torch import Tensor
from transformers import PreTrainedTokenizerBase

from apollod.errors import RecordRefused
from apollod.trainer.objectives.dpo import whole
from apollod.trainer.objectives.tokens import Tokens
from apollod.wire.comparisons import LearnedRecord, RatedRecord, reference_of


class Rated:
    """See `Objective`, and the head of this file."""

    name = "kto"
    token_mean = False

    def encode(self, tokenizer: PreTrainedTokenizerBase, record: LearnedRecord, max_tokens: int) -> Tokens:
        if not isinstance(record, RatedRecord):
            raise RecordRefused("it is no rated answer", "learn it by sft")
        tokens = whole(tokenizer, record.rated.answer, max_tokens)
        terms, count = record.rated.terms, tokens.targets
        constants = {"beta": terms.beta, "zero": terms.zero, "weight": terms.weight}
        columns: dict[str, array[Any]] = {
            "ref": reference_of(record.rated.reference, record.blob, count),
            "sign": array("q", [1 if record.rated.good else -1]) * count,
            **{name: array("f", [value]) * count for name, value in constants.items()},
        }
        return Tokens(tokens.ids, tokens.mask, columns=columns)

    def loss(self, logps: Tensor, columns: Mapping[str, Tensor]) -> Tensor:
        gained = (logps - columns["ref"]).sum() - columns["zero"][0]
        won = (columns["sign"][0] * columns["beta"][0] * gained).sigmoid()
        return columns["weight"][0] * (1 - won)

    def weight(self, tokens: Tokens) -> float:
        """An answer counts as one, whatever its length."""
        return 1.0

    def metrics(self, logps: Tensor, columns: Mapping[str, Tensor]) -> dict[str, float]:
        """reward: beta r. z0."""
        reward = columns["beta"][0] * (logps - columns["ref"]).sum()
        return {"reward": reward.item(), "z0": columns["zero"][0].item()}


KTO = Rated()
