"""Measures how far the model has moved from its earlier outputs: the divergence at each anchor of a step.

    L = L_task + w mean_j D_j
    D_j = 1/N sum_t KL_t                                     KL_t: of `context`, in place t of anchor j, in nats
    D_j = sum_t v_t KL_t,    v_t = KL_t / sum_s KL_s         focused; v_t are constants

A behaviour can be a matter of one place: an answer of 60 tokens that now ends after its first sentence has a KL of 0.5
there and of nothing elsewhere. Its mean is 0.01, like that of an answer that is worded a little differently; focused
it is 0.5. Where all places moved alike both are the same.

Sources: Li and Hoiem, "Learning without Forgetting" (arXiv:1606.09282); Shenfeld, Pari and Agrawal, "RL's Razor"
(arXiv:2509.04259): forgetting follows the KL to the earlier model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor
from transformers import PreTrainedModel

from apollod.trainer.objectives.context import CONTEXT, ContextDistillation
from apollod.trainer.objectives.loss import losses_of
from apollod.trainer.objectives.tokens import Tokens
from apollod.trainer.optim.row_gradient import RowSink

LEAST = 1e-30
"""divisor where no place moved"""


class Focused(ContextDistillation):
    """Weighs each place by its divergence."""

    def loss(self, logps: Tensor, columns: Mapping[str, Tensor]) -> Tensor:
        each = self.places(logps, columns)
        moved = each.detach()
        return (moved / moved.sum().clamp(min=LEAST) * each).sum()


FOCUSED = Focused()


def divergences(
    model: PreTrainedModel, anchors: Sequence[Tokens], sink: RowSink | None = None, focused: bool = False
) -> Tensor:
    """D of each anchor, float32 [anchors], nats a token, with one graph. Each is one sequence, encoded by `context`.
    `sink`: see `loss_of`."""
    return losses_of(model, anchors, sink, FOCUSED if focused else CONTEXT)
