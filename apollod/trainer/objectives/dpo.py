"""Direct preference optimisation: makes the better of two answers likelier than the worse one, by more than the
reference had it.

    d = sum over the better answer of (logp_t - ref_t)  -  the same sum over the worse one
    L = -log s(beta d)  +  sft mean over the better answer of -logp_t        s(x) = 1 / (1 + e^-x)

    dL/dlogp_t = -beta s(-beta d) in the better answer, + in the worse one        (without `sft`)

At the reference's own weights d = 0 and L = log 2, whatever the answers. With `smoothing` e, the chance that the pair
is the wrong way round, L is the hedged -(1 - e) log s(beta d) - e log s(-beta d), or, if `robust`, the unbiased
(-(1 - e) log s(beta d) + e log s(-beta d)) / (1 - 2 e).

Both answers may become less likely together, which `sft` is against. Sums favour long answers, so an answer that does
not fit is refused, and not cut on one side.

Sources: Rafailov et al., "Direct Preference Optimization" (arXiv:2305.18290); Chowdhury et al., "Provably Robust DPO"
(arXiv:2403.00409); Mitchell, "A note on DPO with noisy preferences" (2023).
"""

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
from apollod.wire.comparisons import LearnedRecord, PairRecord, reference_of
from apollod.wire.teacher import GivenBlob

REFERENCE = "ref"
"""The column of log-probabilities under the weights of the time when the example was tokenised, float32 [targets]"""


class DirectPreference:
    """See `Objective`, and the head of this file."""

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
