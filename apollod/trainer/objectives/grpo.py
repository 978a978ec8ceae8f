"""Group relative policy optimisation: raises the probability of answers that are better than the others to the same
prompt, as far as the clipped ratio to the sampler allows.

    L = -sum_t share_t w_t A_t clamp(rho_t)  +  kl sum_t share_t k3_t
    rho_t = exp(logp_t - mu_t)        w_t = 1

One optimizer step learns a group, so the ratio is to the sampler. It measures two things, the age of the rollout and
the difference between the programs of engine and trainer. With `truncate` they are told apart, and age is a weight:
rho is then to the weights at the beginning of the step, at which it is 1, and

    w_t = min(exp(old_t - mu_t), truncate)        old_t: logp_t of the step itself, a constant

No gradient norm of the whole model is clipped, as trainers elsewhere do: updates happen inside the backward pass, where
the norm is not known yet. What bounds a step instead is the limit on the growth of each matrix's update
(`[trainer] limiter`), and the clamp here.

Sources: Shao et al., "DeepSeekMath" (arXiv:2402.03300); Schulman et al., "Proximal Policy Optimization"
(arXiv:1707.06347); bounds of their own: Yu et al., "DAPO" (arXiv:2503.14476); no standard deviation, a constant length:
Liu et al., "Understanding R1-Zero-Like Training" (arXiv:2503.20783); `dual`: "INTELLECT-2" (arXiv:2505.07291);
`truncate`: Yao et al., "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training" (2025).
`surrogate = "atropos"` reproduces example_trainer of atroposlib 0.4.0, which takes the larger of the two terms where
the advantage is negative: a token that has become too likely is then not corrected.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from apollod.trainer.objectives.policy import PolicyObjective, divergence, ratio


class GroupRelative(PolicyObjective):
    """See `Objective`, and the head of this file."""

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
