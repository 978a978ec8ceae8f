"""KTO: learns from single answers that were found good or bad, with no other answer to compare with.

    r = sum_t (logp_t - ref_t)
    L = w (1 - s(beta (r - z0)))        for a good answer
    L = w (1 - s(beta (z0 - r)))        for a bad one        s(x) = 1 / (1 + e^-x)

z0, the point from which gains and losses count, is the divergence from the reference on other questions, never below 0.
The paper estimates it from pairs of a question with another one's answer, which would be a second forward pass. Here it
is the mean r of the answers learned last, each measured before its own step, and not below 0
(core/rules/preferences.py): `step.started` has it, so that a replay has it, too.

Source: Ethayarajh et al., "KTO: Model Alignment as Prospect Theoretic Optimization" (arXiv:2402.01306), which keeps
the number of good answers times their weight between 1 and 4/3 of that of bad ones.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor
from transformers import PreTrainedTokenizerBase

from apollod.errors import RecordRefused
from apollod.trainer.objectives.dpo import REFERENCE, whole, with_reference
from apollod.trainer.objectives.tokens import Tokens
from apollod.wire.comparisons import LearnedRecord, RatedRecord

ZERO = "zero"


class Rated:
    """See `Objective`, and the head of this file."""

    name = "kto"
    token_mean = False

    def encode(self, tokenizer: PreTrainedTokenizerBase, record: LearnedRecord, max_tokens: int) -> Tokens:
        if not isinstance(record, RatedRecord):
            raise RecordRefused("it is no rated answer", "learn it by sft")
        return with_reference(self.without_reference(tokenizer, record, max_tokens), record.reference)

    def without_reference(self, tokenizer: PreTrainedTokenizerBase, record: RatedRecord, max_tokens: int) -> Tokens:
        """All but the column `REFERENCE`. Raises RecordRefused."""
        tokens = whole(tokenizer, record.answer(), max_tokens)
        terms, count = record.rated.terms, tokens.targets
        columns: dict[str, array[Any]] = {
            "sign": array("q", [1 if record.rated.good else -1]) * count,
            "beta": array("f", [terms.beta]) * count,
            "weight": array("f", [terms.weight]) * count,
        }
        return Tokens(tokens.ids, tokens.mask, columns=columns)

    def loss(self, logps: Tensor, columns: Mapping[str, Tensor]) -> Tensor:
        gained = (logps - columns[REFERENCE]).sum() - _zero(columns)
        won = (columns["sign"][0] * columns["beta"][0] * gained).sigmoid()
        return columns["weight"][0] * (1 - won)

    def weight(self, tokens: Tokens) -> float:
        """An answer counts as one, whatever its length."""
        return 1.0

    def metrics(self, logps: Tensor, columns: Mapping[str, Tensor]) -> dict[str, float]:
        """gained: r, in nats an answer. good: 1 for a good answer, else 0. right: 1 if r is above z0 in a good answer,
        below it in a bad one. z0."""
        gained, zero = (logps - columns[REFERENCE]).sum().item(), float(_zero(columns))
        good = columns["sign"][0].item() > 0
        return {"gained": gained, "good": float(good), "right": float((gained > zero) == good), "z0": zero}


def with_zero(tokens: Tokens, zero: float) -> Tokens:
    """The example with the z0 of a step, which is not part of what was recorded of it."""
    return replace(tokens, columns={**tokens.columns, ZERO: array("f", [zero]) * tokens.targets})


def _zero(columns: Mapping[str, Tensor]) -> Tensor | float:
    return columns[ZERO][0] if ZERO in columns else 0.0


KTO = Rated()
