"""Context distillation: trains the bare model to answer as the same model does with an instruction in its context.

    L = 1/N sum_t KL_t        KL_t = sum_{v in K} p_v (log p_v - log q_v) + P (log P - log Q)

p: the model with the instruction before the conversation, asked once, when the answer was found good (the teacher, a
constant); q: the model being trained, without it; K: the teacher's k likeliest tokens at position t; P = 1 - sum_K p_v
and Q = 1 - sum_K q_v: everything else, as one bucket. By the log sum inequality this is at most the KL over the whole
vocabulary, and like that never negative; it is zero where q agrees with p in K. Two other ways to leave the rest out
are wrong: p and q renormalised in K ignore how much of q is outside, and the sum over K alone is not a divergence and
may be below zero.

    dL/dlog q_v = (-p_v + P q_v / Q) / N        for v in K

so that the gradient on the logits is q_v - p_v in K and q_v (1 - P / Q) outside: zero where the two agree, whatever was
sampled there, which for cross-entropy on the sampled answer holds only in the mean.

Where an instruction changes nothing, p and q still differ by the rounding of two programs (engine and trainer), and an
optimizer that divides by the size of its gradients would take full steps in random directions, until the model is
ruined. So positions with KL_t <= `NOISE` count as zero, with no gradient; an answer of nothing but such positions
leaves every weight as it is.

    log P = log(-expm1(min(log sum_K p_v, -1e-7)))

A sum of rounded probabilities may reach 1 and more, which leaves no rest for a logarithm: it is held at 1e-7, without a
gradient. In float32 the loss may be below zero by about as much.

Sources: Snell, Klein, Zhong, "Learning by Distilling Context" (arXiv:2209.15189); Hinton, Vinyals, Dean, "Distilling
the Knowledge in a Neural Network" (arXiv:1503.02531), at temperature 1; the bucket as in TRL's distillation trainers.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from apollod.errors import RecordRefused
from apollod.trainer.objectives.encoding import RULES, tokenise
from apollod.trainer.objectives.policy import sequences_of
from apollod.trainer.objectives.tokens import IDS, Tokens
from apollod.wire.comparisons import GroupRecord, LearnedRecord
from apollod.wire.records import TypedRecord

TEACHER = "teacher"
"""the column of the teacher's log-probabilities of the ids, [targets, k]"""
REST_MIN = 1e-7
NOISE = 1e-3
"""nats a position: log-probabilities of engine and trainer differ by d = 0.007 in the mean and 0.04 at most in bf16,
which makes a KL of d^2 / 2, 8e-4 at most"""


class ContextDistillation:
    """See `Objective`, and the head of this file."""

    name = "context"
    token_mean = False

    def __init__(self, rules: int = RULES) -> None:
        self._rules = rules

    def encode(self, tokenizer: PreTrainedTokenizerBase, record: LearnedRecord, max_tokens: int) -> Tokens:
        """The bare conversation, whose answer must have the very tokens that the teacher scored."""
        if not isinstance(record, TypedRecord) or record.teacher is None:
            raise RecordRefused("it has no teacher", "learn it by sft")
        teacher = record.teacher.read()
        tokens = tokenise(tokenizer, record, max_tokens, self._rules)
        learned, scored = tokens.learned, teacher.answer.tolist()
        if learned != scored and self._rules == RULES:  # an older teacher, whose answer began with an empty thought
            tokens = tokenise(tokenizer, record, max_tokens, RULES - 1)
        if tokens.learned != scored:
            raise RecordRefused(
                _difference(tokenizer, learned, scored),
                "one answer can be learned from a teacher, the last one, and only where the chat template writes it in "
                "the same way with and without the instruction",
            )
        columns: dict[str, array[float] | array[int]] = {IDS: array("q", teacher.ids), TEACHER: teacher.logprobs}
        return replace(tokens, columns=columns)

    def loss(self, logps: Tensor, columns: Mapping[str, Tensor]) -> Tensor:
        return divergences(logps, columns).mean()

    def weight(self, tokens: Tokens) -> float:
        return tokens.targets

    def metrics(self, logps: Tensor, columns: Mapping[str, Tensor]) -> dict[str, float]:
        return {}


def divergences(logps: Tensor, columns: Mapping[str, Tensor]) -> Tensor:
    """KL_t at each learned token, float32 [targets]; below NOISE zero, without a gradient. NaN stays NaN."""
    told, bare = _with_rest(columns[TEACHER]), _with_rest(logps)
    each = (told.exp() * (told - bare)).sum(1)
    return torch.where(each <= NOISE, 0.0, each)


def _with_rest(logps: Tensor) -> Tensor:
    """Log-probabilities [n, k] and, in another column, that of all other tokens together."""
    inside = logps.logsumexp(1, keepdim=True).clamp(max=-REST_MIN)
    return torch.cat([logps, inside.expm1().neg().log()], 1)


def _difference(tokenizer: PreTrainedTokenizerBase, learned: list[int], scored: list[int]) -> str:
    """The first difference between both token sequences, for a person."""
    pairs = zip(learned, scored, strict=False)
    place = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(learned), len(scored)))
    ours, its = (
        repr(tokenizer.decode(ids[place : place + 1])) if place < len(ids) else "nothing" for ids in (learned, scored)
    )
    return (
        f"its teacher was asked about other tokens: {len(scored)} instead of the {len(learned)} that are learned, and "
        f"in place {place + 1} {its} instead of {ours}"
    )


CONTEXT = ContextDistillation()


# Distillation on the model's own samples: at each token that it sampled, it is made to say what a teacher would say
# there.
#
#     L = 1/G sum_i 1/n_i sum_t KL_t        KL_t = sum_{v in K} p_v (log p_v - log q_v) + P (log P - log Q)
#
# p: the teacher at the same place of the same tokens, K: its k likeliest tokens, q: the model; P and Q: all other
# tokens as one bucket, see `context`, whose loss this is for another teacher. Teacher and model have the same
# vocabulary (adapters/tokens.py). The samples are the model's, so it learns what to do where it goes itself.
#
# Sources: Agarwal et al., "On-Policy Distillation of Language Models" (arXiv:2306.13649); Hinton, Vinyals, Dean,
# "Distilling the Knowledge in a Neural Network" (arXiv:1503.02531), at temperature 1.


class Distillation:
    """See `Objective`, and the comment above."""

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
