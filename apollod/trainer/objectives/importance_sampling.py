"""The policy gradient with importance weights: the ratio to the sampler, unbounded.

    L = -sum_t share_t A_t rho_t        rho_t = exp(logp_t - mu_t)

Unbiased for rollouts of older weights, and of a variance that grows with their age: `grpo` and `cispo` bound it.
Source: Williams, "Simple Statistical Gradient-Following Algorithms" (1992), with importance sampling.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from apollod.trainer.objectives.policy import PolicyObjective, ratio


class ImportanceSampling(PolicyObjective):
    """See `Objective`, and the head of this file."""

    name = "importance_sampling"

    def loss(self, logps: Tensor, columns: Mapping[str, Tensor]) -> Tensor:
        return -(columns["share"] * columns["advantage"] * ratio(logps, columns["mu"])).sum()


IMPORTANCE_SAMPLING = ImportanceSampling()
