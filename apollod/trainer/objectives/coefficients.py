"""A loss that was computed elsewhere, as its derivatives by the log-probabilities of the learned tokens.

    L = sum_t c_t logp_t        dL/dlogp_t = c_t

Any loss that depends on log-probabilities of given tokens alone has such coefficients, at the log-probabilities at
which it was computed; those of other weights have other ones, so they are for one step. A positive coefficient makes
its token less probable. The value of L is of no use; its gradient is that of the loss.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping

from torch import Tensor
from transformers import PreTrainedTokenizerBase

from apollod.errors import RecordRefused
from apollod.trainer.objectives.policy import sequences_of
from apollod.trainer.objectives.tokens import Tokens
from apollod.wire.comparisons import GroupRecord, LearnedRecord


class Coefficients:
    """See `Objective`, and the head of this file."""

    name = "coefficients"
    token_mean = False

    def encode(self, tokenizer: PreTrainedTokenizerBase, record: LearnedRecord, max_tokens: int) -> Tokens:
        """The tokens as they are, with their coefficients."""
        if not isinstance(record, GroupRecord):
            raise RecordRefused("it has no coefficients", "learn it by sft")
        group = record.read()
        values = array("f", b"".join(one.coefficients for one in group.rollouts))
        if not all(one.coefficients for one in group.rollouts):
            raise RecordRefused("a sequence has no coefficients", "give one for each learned token")
        return sequences_of(group, {"coefficient": values})

    def loss(self, logps: Tensor, columns: Mapping[str, Tensor]) -> Tensor:
        return (columns["coefficient"] * logps).sum()

    def weight(self, tokens: Tokens) -> float:
        """An example counts as one: its coefficients have every other weight in them."""
        return 1.0

    def metrics(self, logps: Tensor, columns: Mapping[str, Tensor]) -> dict[str, float]:
        return {}


COEFFICIENTS = Coefficients()
