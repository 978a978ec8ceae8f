"""Losses of groups of rollouts, the columns that they read, and figures that tell if learning by them goes well.

A group is one example of several sequences. Everything that differs between variants of these losses, but not between
steps, is in the columns, one value for each sampled token:

    mu          log-probability that the sampler gave it, at its temperature
    advantage   of its answer, relative to the others (wire/rollouts.py)
    share       what the token counts in the mean: 1 / (G n_i) for the mean over answers of the mean over their n_i
                tokens (DeepSeekMath), 1 / sum n_i for the mean over tokens (DAPO), 1 / (G length) for sums over a
                constant (Dr. GRPO), 1 for a sum
    least, most bounds of the ratio rho = exp(logp - mu), one-sided, so that A clamp(rho) is the pessimistic bound

        min(rho A, clip(rho, low, high) A) = A clamp(rho, 0, high)     for A >= 0
                                           = A clamp(rho, low, dual)   for A < 0

The difference of log-probabilities is clamped to +-20 before its exponential: 300 tokens with a bias of 0.1 each would
overflow otherwise.

Healthy: a mean ratio of 0.8 to 1.2, less than 0.3 of the tokens clipped, a mean |logp - mu| below 0.1 at equal weights.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from apollod.errors import RecordRefused
from apollod.trainer.objectives.tokens import TEMPERATURE, Tokens
from apollod.wire.comparisons import GroupRecord, LearnedRecord
from apollod.wire.rollouts import Group, Rollout, Terms, advantages

EXPONENT_MAX = 20.0
APART_MAX = 0.1
"""mean |logp - mu| above which nothing is written, where the sampler had the weights of the step's beginning"""
APART_MAX_UNKNOWN = 1.0
"""the same where it is not known which weights the sampler had: they may have been some steps older"""
VERSION = "version"
"""The column of the weights' version that sampled an answer; UNKNOWN: not known, MIXED: several"""
UNKNOWN, MIXED = -1, -2
NO_BOUND = 1e30
"""float32 has it, and exp(EXPONENT_MAX) is far below"""


class PolicyObjective:
    """Encodes groups for the losses of this kind; see `Objective`."""

    token_mean = False

    def encode(self, tokenizer: PreTrainedTokenizerBase, record: LearnedRecord, max_tokens: int) -> Tokens:
        """The sampled tokens as they are: nothing is tokenised again."""
        if not isinstance(record, GroupRecord):
            raise RecordRefused("it is no group of rollouts", "learn it by sft")
        return self.encoded(record.group.terms, record.read())

    def encoded(self, terms: Terms, group: Group) -> Tokens:
        """The example of a group. Raises RecordRefused for one without spread."""
        scores = [one.score for one in group.rollouts]
        better = advantages(scores, terms.divide)
        if better is None:
            raise RecordRefused(
                f"all {len(scores)} rollouts have the score {scores[0]:g}: none is better than another",
                "leave the group out, or score finer",
            )
        columns = _Columns(terms, group)
        for one, advantage in zip(group.rollouts, better, strict=True):
            advantage = 0.0 if one.neutral else advantage
            columns.add(one, advantage, self.bounds(terms, advantage))
        return sequences_of(group, columns.found)

    def bounds(self, terms: Terms, advantage: float) -> tuple[float, float]:
        """Least and largest ratio of a token with this advantage."""
        if advantage >= 0 or terms.surrogate == "atropos":
            return 0.0, terms.high
        return terms.low, terms.dual or NO_BOUND

    def weight(self, tokens: Tokens) -> float:
        """A step over several groups is the mean over groups."""
        return 1.0

    def metrics(self, logps: Tensor, columns: Mapping[str, Tensor]) -> dict[str, float]:
        """Figures of the step's beginning, from log-probabilities [targets] without a graph."""
        return policy_metrics(logps, columns)


def sequences_of(group: Group, columns: Mapping[str, array[float] | array[int]]) -> Tokens:
    """The rollouts of a group as one example with these columns."""
    ids, mask, starts = list[int](), list[bool](), list[int]()
    for one in group.rollouts:
        starts.append(len(ids))
        ids += one.tokens
        mask += one.learned
    return Tokens(ids, mask, columns=columns, starts=tuple(starts))


def ratio(logps: Tensor, mu: Tensor) -> Tensor:
    """exp(logp - mu), clamped before the exponential."""
    return (logps - mu).clamp(-EXPONENT_MAX, EXPONENT_MAX).exp()


def divergence(logps: Tensor, reference: Tensor) -> Tensor:
    """KL of the model to a reference on tokens that the model sampled, by the estimator k3, never negative:

    e^d - 1 - d        d = reference - logp        (Schulman, "Approximating KL Divergence", 2020)
    """
    apart = (reference - logps).clamp(-EXPONENT_MAX, EXPONENT_MAX)
    return apart.expm1() - apart


def policy_metrics(logps: Tensor, columns: Mapping[str, Tensor]) -> dict[str, float]:
    """ratio: mean over sampled tokens. clipped: share of them whose gradient the clip takes away. apart: mean
    |logp - mu|. kl: from the sampler to the model, by k3. entropy: the mean of -logp, an estimate from the sampled
    tokens."""
    logps, mu, here = logps.double(), columns["mu"].double(), ratio(logps.double(), columns["mu"].double())
    clipped = (here < columns["least"]) | (here > columns["most"])
    return {
        "ratio": here.mean().item(),
        "clipped": clipped.double().mean().item(),
        "apart": (logps - mu).abs().mean().item(),
        "kl": divergence(mu, logps).mean().item(),
        "entropy": logps.neg().mean().item(),
    }


def unaligned(metrics: Mapping[str, float], batch: Sequence[Tokens], step: int) -> str:
    """Reason to write nothing, where the model gives the sampled tokens other log-probabilities than the sampler did,
    although it had the same weights; empty: none, the weights differ, or no sampler was there. Differences between
    weights are what the bounds of the ratio are for."""
    versions = {version for tokens in batch for version in tokens.columns.get(VERSION, (MIXED,))}
    bound = {step - 1: APART_MAX, UNKNOWN: APART_MAX_UNKNOWN}.get(int(versions.pop())) if len(versions) == 1 else None
    apart = metrics.get("apart", 0.0)
    if bound is None or apart <= bound:
        return ""
    return (
        f"the sampled tokens have log-probabilities {apart:.2f} nats apart from the sampler's (at most {bound:g}): "
        "other weights sampled them, or another temperature or template: nothing was written"
    )


class _Columns:
    """Columns of a group, rollout by rollout."""

    def __init__(self, terms: Terms, group: Group) -> None:
        self._terms, self._count, self._number = terms, len(group.rollouts), 0
        self._targets = sum(sum(one.learned) for one in group.rollouts)
        self._is_hot = any(one.temperature != 1.0 for one in group.rollouts)
        self.found: dict[str, array[float] | array[int]] = {}

    def add(self, one: Rollout, advantage: float, bounds: tuple[float, float]) -> None:
        """The columns of one rollout."""
        terms, length = self._terms, sum(one.learned)
        least, most = bounds
        self._put("f", length, advantage=advantage, share=self._share(length), least=least, most=most, beta=terms.beta)
        self._extend("mu", "f", array("f", one.logprobs))
        first, last = one.versions
        self._put("q", length, answer=self._number, **{VERSION: first if first == last else MIXED})
        self._number += 1
        if self._is_hot:
            self._put("f", length, **{TEMPERATURE: one.temperature})
        if terms.kl:
            if not one.reference:
                raise RecordRefused("kl is above 0, and a rollout has no reference", "set kl = 0, or score it first")
            self._extend("reference", "f", array("f", one.reference))
            self._put("f", length, kl=terms.kl)
        if terms.truncate:
            self._put("f", length, truncate=terms.truncate)

    def _share(self, length: int) -> float:
        match self._terms.mean:
            case "sequence":
                return 1.0 / (self._count * length)
            case "token":
                return 1.0 / self._targets
            case "constant":
                return 1.0 / (self._count * max(1, self._terms.length))
            case "sum":
                return 1.0

    def _put(self, typecode: str, length: int, **values: float) -> None:
        for name, value in values.items():
            self._extend(name, typecode, array(typecode, [value]) * length)

    def _extend(self, name: str, typecode: str, values: array[Any]) -> None:
        self.found.setdefault(name, array(typecode)).extend(values)


# The policy gradient with importance weights: the ratio to the sampler, unbounded.
#
#     L = -sum_t share_t A_t rho_t        rho_t = exp(logp_t - mu_t)
#
# Unbiased for rollouts of older weights, and of a variance that grows with their age: `grpo` and `cispo` bound it.
# Source: Williams, "Simple Statistical Gradient-Following Algorithms" (1992), with importance sampling.
class ImportanceSampling(PolicyObjective):
    """See `Objective`, and the comment above."""

    name = "importance_sampling"

    def loss(self, logps: Tensor, columns: Mapping[str, Tensor]) -> Tensor:
        return -(columns["share"] * columns["advantage"] * ratio(logps, columns["mu"])).sum()


IMPORTANCE_SAMPLING = ImportanceSampling()


# Group relative policy optimisation: raises the probability of answers that are better than the others to the same
# prompt, as far as the clipped ratio to the sampler allows.
#
#     L = -sum_t share_t w_t A_t clamp(rho_t)  +  kl sum_t share_t k3_t
#     rho_t = exp(logp_t - mu_t)        w_t = 1
#
# One optimizer step learns a group, so the ratio is to the sampler. It measures two things, the age of the rollout and
# the difference between the programs of engine and trainer. With `truncate` they are told apart, and age is a weight:
# rho is then to the weights at the beginning of the step, at which it is 1, and
#
#     w_t = min(exp(old_t - mu_t), truncate)        old_t: logp_t of the step itself, a constant
#
# No gradient norm of the whole model is clipped, as trainers elsewhere do: updates happen inside the backward pass,
# where the norm is not known yet. What bounds a step instead is the limit on the growth of each matrix's update
# (`[trainer] limiter`), and the clamp here.
#
# Sources: Shao et al., "DeepSeekMath" (arXiv:2402.03300); Schulman et al., "Proximal Policy Optimization"
# (arXiv:1707.06347); bounds of their own: Yu et al., "DAPO" (arXiv:2503.14476); no standard deviation, a constant
# length: Liu et al., "Understanding R1-Zero-Like Training" (arXiv:2503.20783); `dual`: "INTELLECT-2"
# (arXiv:2505.07291); `truncate`: Yao et al., "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training"
# (2025). `surrogate = "atropos"` reproduces example_trainer of atroposlib 0.4.0, which takes the larger of the two
# terms where the advantage is negative: a token that has become too likely is then not corrected.
class GroupRelative(PolicyObjective):
    """See `Objective`, and the comment above."""

    name = "grpo"

    def loss(self, logps: Tensor, columns: Mapping[str, Tensor]) -> Tensor:
        old, weight = columns["mu"], columns["share"] * columns["advantage"]
        if "truncate" in columns:
            old = columns.get("old", logps.detach())
            weight = weight * ratio(old, columns["mu"]).minimum(columns["truncate"])
        bounded = ratio(logps, old).clamp(columns["least"], columns["most"])
        loss = -(weight * bounded).sum()
        if "reference" in columns:
            loss = loss + (columns["kl"] * columns["share"] * divergence(logps, columns["reference"])).sum()
        return loss


GRPO = GroupRelative()


# CISPO: the clipped ratio is a weight of the gradient, so that no token loses its gradient altogether.
#
#     L = -sum_t share_t A_t sg(clamp(rho_t, low, high)) logp_t        rho_t = exp(logp_t - mu_t), sg: a constant
#
# Sources: "MiniMax-M1" (arXiv:2506.13585); "The Art of Scaling Reinforcement Learning Compute" (arXiv:2510.13786),
# which has no lower bound and an upper one of 5.
class ClippedWeights(PolicyObjective):
    """See `Objective`, and the comment above. `low` and `high` of the terms bound every token's weight, whatever
    the sign of its advantage."""

    name = "cispo"

    def bounds(self, terms: Terms, advantage: float) -> tuple[float, float]:
        return terms.low, terms.high

    def loss(self, logps: Tensor, columns: Mapping[str, Tensor]) -> Tensor:
        weight = ratio(logps.detach(), columns["mu"]).clamp(columns["least"], columns["most"])
        return -(columns["share"] * columns["advantage"] * weight * logps).sum()


CISPO = ClippedWeights()


# GSPO: one ratio for an answer, the geometric mean of those of its tokens, clipped as a whole.
#
#     L = -sum_t share_t A_t clamp(s_i)        s_i = exp(mean over answer i of (logp_t - mu_t))
#
# Since the ratio of a mean moves far less than that of a token, its bounds are narrow: 1 - 3e-4 and 1 + 4e-4 in the
# paper. Source: Zheng et al., "Group Sequence Policy Optimization" (arXiv:2507.18071).
class SequenceRatio(PolicyObjective):
    """See `Objective`, and the comment above."""

    name = "gspo"

    def loss(self, logps: Tensor, columns: Mapping[str, Tensor]) -> Tensor:
        bounded = sequence_ratio(logps, columns).clamp(columns["least"], columns["most"])
        return -(columns["share"] * columns["advantage"] * bounded).sum()

    def metrics(self, logps: Tensor, columns: Mapping[str, Tensor]) -> dict[str, float]:
        """As of all losses of groups; `ratio` and `clipped` are those of whole answers."""
        here = sequence_ratio(logps.double(), columns)
        clipped = (here < columns["least"]) | (here > columns["most"])
        found = policy_metrics(logps, columns)
        return {**found, "ratio": here.mean().item(), "clipped": clipped.double().mean().item()}


def sequence_ratio(logps: Tensor, columns: Mapping[str, Tensor]) -> Tensor:
    """s_i for each token of answer i: [targets]."""
    answer = columns["answer"]
    sizes = torch.bincount(answer).to(logps.dtype)
    # a product with 0 and 1 and not index_add: its sums have one order on every device
    member = torch.nn.functional.one_hot(answer).to(logps.dtype)
    means = (member * (logps - columns["mu"])[:, None]).sum(0) / sizes
    return ratio(means, torch.zeros_like(means))[answer]


GSPO = SequenceRatio()


# DRO: the policy gradient without a ratio, held near the sampler by a quadratic term.
#
#     L = -sum_t share_t (A_t logp_t - beta / 2 (logp_t - mu_t)^2)
#
# Source: Richemond et al., "Offline Regularised Reinforcement Learning for Large Language Models Alignment"
# (arXiv:2405.19107), token by token as in the Tinker service.
class DirectReward(PolicyObjective):
    """See `Objective`, and the comment above."""

    name = "dro"

    def loss(self, logps: Tensor, columns: Mapping[str, Tensor]) -> Tensor:
        apart = logps - columns["mu"]
        return -(columns["share"] * (columns["advantage"] * logps - columns["beta"] / 2 * apart.square())).sum()


DRO = DirectReward()


# A loss that was computed elsewhere, as its derivatives by the log-probabilities of the learned tokens.
#
#     L = sum_t c_t logp_t        dL/dlogp_t = c_t
#
# Any loss that depends on log-probabilities of given tokens alone has such coefficients, at the log-probabilities at
# which it was computed; those of other weights have other ones, so they are for one step. A positive coefficient makes
# its token less probable. The value of L is of no use; its gradient is that of the loss.
class Coefficients:
    """See `Objective`, and the comment above."""

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
