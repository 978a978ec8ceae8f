"""Losses of compared answers: a pair of which one was preferred, and single answers that were found good or bad."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor
from torch.nn.functional import logsigmoid
from transformers import PreTrainedTokenizerBase

from apollod.errors import RecordRefused
from apollod.trainer.objectives.encoding import tokenise
from apollod.trainer.objectives.tokens import Tokens
from apollod.wire.comparisons import LearnedRecord, PairRecord, RatedRecord, reference_of
from apollod.wire.teacher import GivenBlob

# Direct preference optimisation: makes the better of two answers likelier than the worse one, by more than the
# reference had it.
#
#     d = sum over the better answer of (logp_t - ref_t)  -  the same sum over the worse one
#     L = -log s(beta d)  +  sft mean over the better answer of -logp_t        s(x) = 1 / (1 + e^-x)
#
#     dL/dlogp_t = -beta s(-beta d) in the better answer, + in the worse one        (without `sft`)
#
# At the reference's own weights d = 0 and L = log 2, whatever the answers. With `smoothing` e, the chance that the pair
# is the wrong way round, L is the hedged -(1 - e) log s(beta d) - e log s(-beta d), or, if `robust`, the unbiased
# (-(1 - e) log s(beta d) + e log s(-beta d)) / (1 - 2 e).
#
# Both answers may become less likely together, which `sft` is against. Sums favour long answers, so an answer that does
# not fit is refused, and not cut on one side.
#
# Sources: Rafailov et al., "Direct Preference Optimization" (arXiv:2305.18290); Chowdhury et al., "Provably Robust DPO"
# (arXiv:2403.00409); Mitchell, "A note on DPO with noisy preferences" (2023).

REFERENCE = "ref"
"""The column of log-probabilities under the weights of the time when the example was tokenised, float32 [targets]"""


class DirectPreference:
    """See `Objective`, and the comment above."""

    name = "dpo"
    token_mean = False

    def encode(self, tokenizer: PreTrainedTokenizerBase, record: LearnedRecord, max_tokens: int) -> Tokens:
        if not isinstance(record, PairRecord):
            raise RecordRefused("it is no pair of answers", "learn it by sft")
        return with_reference(self.without_reference(tokenizer, record, max_tokens), record.reference)

    def without_reference(self, tokenizer: PreTrainedTokenizerBase, record: PairRecord, max_tokens: int) -> Tokens:
        """All but the column `REFERENCE`. Raises RecordRefused."""
        better, worse = (whole(tokenizer, one, max_tokens) for one in record.answers())
        if better.learned == worse.learned:
            raise RecordRefused("both answers of the pair are the same tokens", "leave it out: neither is better")
        count, terms = better.targets + worse.targets, record.pair.terms
        columns: dict[str, array[Any]] = {"sign": array("q", [1] * better.targets + [-1] * worse.targets)}
        constants = {"beta": terms.beta, "smoothing": terms.smoothing, "robust": float(terms.robust), "sft": terms.sft}
        columns |= {name: array("f", [value]) * count for name, value in constants.items()}
        starts = (0, len(better.ids))
        return Tokens(better.ids + worse.ids, better.mask + worse.mask, columns=columns, starts=starts)

    def loss(self, logps: Tensor, columns: Mapping[str, Tensor]) -> Tensor:
        apart = margin(logps, columns)
        wrong, robust = columns["smoothing"][0], columns["robust"][0]
        for_it, against = logsigmoid(apart), logsigmoid(-apart)
        hedged = -(1 - wrong) * for_it - (1 - 2 * robust) * wrong * against
        better = columns["sign"] > 0
        own = -(logps * better).sum() / better.sum()
        return hedged / (1 - 2 * robust * wrong) + columns["sft"][0] * own

    def weight(self, tokens: Tokens) -> float:
        """A pair counts as one, whatever its length."""
        return 1.0

    def metrics(self, logps: Tensor, columns: Mapping[str, Tensor]) -> dict[str, float]:
        """margin: beta d. right: 1 if it is above 0. better, worse: beta (logp - ref) of each answer."""
        each = columns["beta"] * (logps - columns[REFERENCE])
        better, worse = (each[columns["sign"] == sign].sum().item() for sign in (1, -1))
        return {"margin": better - worse, "right": float(better > worse), "better": better, "worse": worse}


def with_reference(tokens: Tokens, blob: GivenBlob | None) -> Tokens:
    """The example with the column `REFERENCE`, out of its file. Raises RecordRefused as `reference_of`."""
    return replace(tokens, columns={**tokens.columns, REFERENCE: reference_of(blob, tokens.targets)})


def margin(logps: Tensor, columns: Mapping[str, Tensor]) -> Tensor:
    """beta d, float32 []."""
    return columns["beta"][0] * (columns["sign"] * (logps - columns[REFERENCE])).sum()


def whole(tokenizer: PreTrainedTokenizerBase, record: LearnedRecord, max_tokens: int) -> Tokens:
    """An answer with its whole conversation: two answers are compared after the same one. Raises RecordRefused."""
    tokens = tokenise(tokenizer, record, max_tokens)
    if tokens.cut or tokens.changes:
        raise RecordRefused(
            f"its conversation does not fit into [trainer] max_tokens = {max_tokens}", "raise it: nothing is cut here"
        )
    return tokens


DPO = DirectPreference()


# KTO: learns from single answers that were found good or bad, with no other answer to compare with.
#
#     r = sum_t (logp_t - ref_t)
#     L = w (1 - s(beta (r - z0)))        for a good answer
#     L = w (1 - s(beta (z0 - r)))        for a bad one        s(x) = 1 / (1 + e^-x)
#
# z0, the point from which gains and losses count, is the divergence from the reference on other questions, never below
# 0. The paper estimates it from pairs of a question with another one's answer, which would be a second forward pass.
# Here it is the mean r of the answers learned last, each measured before its own step, and not below 0
# (core/rules/preferences.py): `step.started` has it, so that a replay has it, too.
#
# Source: Ethayarajh et al., "KTO: Model Alignment as Prospect Theoretic Optimization" (arXiv:2402.01306), which keeps
# the number of good answers times their weight between 1 and 4/3 of that of bad ones.

ZERO = "zero"


class Rated:
    """See `Objective`, and the comment above."""

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
