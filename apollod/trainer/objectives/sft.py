"""Supervised fine-tuning: the mean cross-entropy over the learned tokens.

    L = -1/N sum_t logp_t        dL/dlogp_t = -1/N

In a step over several examples every token has the same weight, as in transformers' Trainer (`num_items_in_batch`).
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor
from transformers import PreTrainedTokenizerBase

from apollod.trainer.objectives.encoding import RULES, tokenise
from apollod.trainer.objectives.tokens import Tokens
from apollod.wire.comparisons import LearnedRecord


class SupervisedFineTuning:
    """See `Objective`."""

    name = "sft"
    token_mean = True

    def __init__(self, rules: int = RULES) -> None:
        self._rules = rules

    def encode(self, tokenizer: PreTrainedTokenizerBase, record: LearnedRecord, max_tokens: int) -> Tokens:
        return tokenise(tokenizer, record, max_tokens, self._rules)

    def loss(self, logps: Tensor, columns: Mapping[str, Tensor]) -> Tensor:
        return logps.neg().mean()

    def weight(self, tokens: Tokens) -> float:
        return tokens.targets

    def metrics(self, logps: Tensor, columns: Mapping[str, Tensor]) -> dict[str, float]:
        return {}


SFT = SupervisedFineTuning()
