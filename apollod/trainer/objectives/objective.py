"""The interface of a loss that a step can train by, and the plainest one.

A loss sees log-probabilities of the learned tokens, or of the tokens that it asks for at their positions (`IDS` in
tokens.py), and its own columns, never logits, a model or an optimizer, and so works with the chunked head (loss.py),
with gradients that never exist whole, with batches, undo and replay. Inputs from another time than the step (the
sampler's log-probabilities, rewards, a reference, a teacher) have to be in the record, or in a blob that the record
names, so that `encode` gives the same columns again in a replay.

A new loss is a class with its formula and paper, one line in table.py, and a case in
tests/unit/trainer/test_objectives.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor
from transformers import PreTrainedTokenizerBase

from apollod.trainer.objectives.encoding import RULES, tokenise
from apollod.trainer.objectives.tokens import Tokens
from apollod.wire.comparisons import LearnedRecord


class Objective(Protocol):
    """One loss. Stateless: everything that a step depends on is in its example."""

    @property
    def name(self) -> str:
        """Name in messages, events and the configuration; never renamed."""

    @property
    def token_mean(self) -> bool:
        """True if the loss is the mean of -logp over the learned tokens, so that d loss / d logp = -1/N is known
        beforehand."""

    def encode(self, tokenizer: PreTrainedTokenizerBase, record: LearnedRecord, max_tokens: int) -> Tokens:
        """Ids, mask and columns of a record; raises RecordRefused with the reason. A pure function: a replay compares
        the digest."""

    def loss(self, logps: Tensor, columns: Mapping[str, Tensor]) -> Tensor:
        """Loss of one example, float32 [], differentiable in `logps`.

        logps     float32 [targets], natural logarithms, of the learned tokens of all its sequences in order; with a
                  column `IDS`, [targets, k], of those ids instead
        columns   of `Tokens.columns`: float32 or int64, [targets] or [targets, k], on the same device

        Deterministic and stateless. Not finite if nothing may be written.
        """

    def weight(self, tokens: Tokens) -> float:
        """Weight of an example in a step over several: L = sum_i w_i L_i / sum_i w_i. Above zero, and independent of
        its loss."""

    def metrics(self, logps: Tensor, columns: Mapping[str, Tensor]) -> dict[str, float]:
        """Figures by which a person or a guard sees if learning by this loss goes well, for the step's event. Inputs as
        of `loss`, without a graph."""


class SupervisedFineTuning:
    """The plainest loss: the mean cross-entropy over the learned tokens.

        L = -1/N sum_t logp_t        dL/dlogp_t = -1/N

    In a step over several examples every token has the same weight, as in transformers' Trainer (`num_items_in_batch`).
    """

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
