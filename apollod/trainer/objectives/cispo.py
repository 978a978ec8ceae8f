"""CISPO: the clipped ratio is a weight of the gradient, so that no token loses its gradient altogether.

    L = -sum_t share_t A_t sg(clamp(rho_t, low, high)) logp_t        rho_t = exp(logp_t - mu_t), sg: a constant

Sources: "MiniMax-M1" (arXiv:2506.13585); "The Art of Scaling Reinforcement Learning Compute" (arXiv:2510.13786), which
has no lower bound and an upper one of 5.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from apollod.trainer.objectives.policy import PolicyObjective, ratio
from apollod.wire.rollouts import Terms


class ClippedWeights(PolicyObjective):
    """See `Objective`, and the head of this file. `low` and `high` of the terms bound every token's weight, whatever
    the sign of its advantage."""

    name = "cispo"

    def bounds(self, terms: Terms, advantage: float) -> tuple[float, float]:
        return terms.low, terms.high

    def loss(self, logps: Tensor, columns: Mapping[str, Tensor]) -> Tensor:
        weight = ratio(logps.detach(), columns["mu"]).clamp(columns["least"], columns["most"])
        return -(columns["share"] * columns["advantage"] * weight * logps).sum()


CISPO = ClippedWeights()
