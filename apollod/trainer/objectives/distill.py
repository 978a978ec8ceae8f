"""Distillation on the model's own samples: at each token that it sampled, it is made to say what a teacher would say
there.

    L = 1/G sum_i 1/n_i sum_t KL_t        KL_t = sum_{v in K} p_v (log p_v - log q_v) + P (log P - log Q)

p: the teacher at the same place of the same tokens, K: its k likeliest tokens, q: the model; P and Q: all other tokens
as one bucket, see `context`, whose loss this is for another teacher. Teacher and model have the same vocabulary
(adapters/tokens.py). The samples are the model's, so it learns what to do where it goes itself.

Sources: Agarwal et al., "On-Policy Distillation of Language Models" (arXiv:2306.13649); Hinton, Vinyals, Dean,
"Distilling the Knowledge in a Neural Network" (arXiv:1503.02531), at temperature 1.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping

from torch import Tensor
from transformers import PreTrainedTokenizerBase

from apollod.errors import RecordRefused
from apollod.trainer.objectives.context import TEACHER, divergences
from apollod.trainer.objectives.policy import sequences_of
from apollod.trainer.objectives.tokens import IDS, Tokens
from apollod.wire.comparisons import GroupRecord, LearnedRecord


class Distillation:
    """See `Objective`, and the head of this file."""

    name = "distill"
    token_mean = False

    def encode(self, tokenizer: PreTrainedTokenizerBase, record: LearnedRecord, max_tokens: int) -> Tokens:
        """The sampled tokens as they are, with what the teacher says at each."""
        if not isinstance(record, GroupRecord):
            raise RecordRefused("it is no group of rollouts", "learn it by sft")
        group = record.read()
        if not all(one.likeliest for one in group.rollouts):
            raise RecordRefused("a rollout has no teacher", "name one, or learn the group by grpo")
        counts = [sum(one.learned) for one in group.rollouts]
        if len({len(one.likeliest) // count for one, count in zip(group.rollouts, counts, strict=True)}) > 1:
            raise RecordRefused("its teachers name different numbers of tokens", "ask for the same number")
        shares = array("f")
        for count in counts:
            shares.extend([1.0 / (len(counts) * count)] * count)
        columns: dict[str, array[float] | array[int]] = {
            IDS: array("q", array("I", b"".join(one.likeliest for one in group.rollouts))),
            TEACHER: array("f", b"".join(one.told for one in group.rollouts)),
            "share": shares,
        }
        return sequences_of(group, columns)

    def loss(self, logps: Tensor, columns: Mapping[str, Tensor]) -> Tensor:
        return (columns["share"] * divergences(logps, columns)).sum()

    def weight(self, tokens: Tokens) -> float:
        """A step over several groups is the mean over groups."""
        return 1.0

    def metrics(self, logps: Tensor, columns: Mapping[str, Tensor]) -> dict[str, float]:
        """kl: from the teacher, in nats a token."""
        return {"kl": divergences(logps, columns).mean().item()}


DISTILL = Distillation()
