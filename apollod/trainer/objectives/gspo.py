"""GSPO: one ratio for an answer, the geometric mean of those of its tokens, clipped as a whole.

    L = -sum_t share_t A_t clamp(s_i)        s_i = exp(mean over answer i of (logp_t - mu_t))

Since the ratio of a mean moves far less than that of a token, its bounds are narrow: 1 - 3e-4 and 1 + 4e-4 in the
paper. Source: Zheng et al., "Group Sequence Policy Optimization" (arXiv:2507.18071).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from apollod.trainer.objectives.policy import PolicyObjective, policy_metrics, ratio


class SequenceRatio(PolicyObjective):
    """See `Objective`, and the head of this file."""

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
