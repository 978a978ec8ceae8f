"""DRO: the policy gradient without a ratio, held near the sampler by a quadratic term.

    L = -sum_t share_t (A_t logp_t - beta / 2 (logp_t - mu_t)^2)

Source: Richemond et al., "Offline Regularised Reinforcement Learning for Large Language Models Alignment"
(arXiv:2405.19107), token by token as in the Tinker service.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from apollod.trainer.objectives.policy import PolicyObjective


class DirectReward(PolicyObjective):
    """See `Objective`, and the head of this file."""

    name = "dro"

    def loss(self, logps: Tensor, columns: Mapping[str, Tensor]) -> Tensor:
        apart = logps - columns["mu"]
        return -(columns["share"] * (columns["advantage"] * logps - columns["beta"] / 2 * apart.square())).sum()


DRO = DirectReward()
